import { durationMs } from '@bufbuild/protobuf/wkt';
import type { CoordinatorMessage } from '@cloudless/api';
import { CurrentReconnectTimes, computeReconnectTimes } from './reconnect-times.js';

const LEASE_MS = 3_000;
const toMs = ({ reconnectSpread, reconnectPauseMax, leaderLossSpread }: Partial<Times>) =>
  [reconnectSpread, reconnectPauseMax, leaderLossSpread].map((time) => time && durationMs(time));
type Times = ReturnType<typeof computeReconnectTimes>;

describe('computeReconnectTimes', () => {
  it.each([
    { nodes: 0, times: [0, 1_000, 0] },
    { nodes: 4, times: [2, 1_000, 8] },
    { nodes: 1_000, times: [500, 1_000, 2_000] },
    { nodes: 5_000, times: [1_000, 2_500, 10_000] },
    { nodes: 100_000, times: [1_000, 10_000, 10_000] },
  ])('spreads the dials of $nodes agents', ({ nodes, times }) => {
    expect(toMs(computeReconnectTimes(nodes, LEASE_MS))).toEqual(times);
  });
});

describe('CurrentReconnectTimes', () => {
  const changeNodes = (count: number) =>
    Array.from({ length: Math.abs(count) }, () => ({
      kind: 'node' as const,
      ...(count < 0 ? { before: {} } : { after: {} }),
    }));

  it('counts nodes that were added and removed, and no other records', () => {
    const current = new CurrentReconnectTimes(10, LEASE_MS);
    current.noteChanges([...changeNodes(8), ...changeNodes(-3)], []);
    current.noteChanges([{ kind: 'workload', after: {} }], []);
    expect(current.times).toEqual(computeReconnectTimes(15, LEASE_MS));
  });

  it.each([
    { name: 'a small cluster', from: 2, change: 90, isAnnounced: false },
    { name: 'less than half as many more', from: 1_000, change: 498, isAnnounced: false },
    { name: 'half as many more', from: 1_000, change: 500, isAnnounced: true },
    { name: 'a third fewer', from: 1_500, change: -500, isAnnounced: true },
    { name: 'many from none', from: 0, change: 101, isAnnounced: true },
  ])('sends other times once after a large change: $name', ({ from, change, isAnnounced }) => {
    const current = new CurrentReconnectTimes(from, LEASE_MS);
    const sent: CoordinatorMessage['message'][] = [];
    const session = {
      outbox: { push: (_key: string, { message }: CoordinatorMessage) => sent.push(message) },
    };
    current.noteChanges(changeNodes(change), [session]);
    current.noteChanges(changeNodes(1), [session]);
    expect(sent.map(({ case: kind }) => kind)).toEqual(isAnnounced ? ['reconnectTimes'] : []);
    for (const { value } of sent)
      expect(toMs(value as Partial<Times>)).toEqual(
        toMs(computeReconnectTimes(from + change, LEASE_MS)),
      );
  });
});
