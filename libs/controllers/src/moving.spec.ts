import { create, type MessageInitShape } from '@bufbuild/protobuf';
import { durationFromMs, timestampFromMs } from '@bufbuild/protobuf/wkt';
import {
  Taint_Effect as Effect,
  Toleration_Operator as Operator,
  type TolerationSchema,
} from '@cloudless/api';
import { DrainRecordSchema, NodeRecordSchema, VersionRecordSchema } from '@cloudless/api/store';
import { drainLeftMs, movingOf } from './moving.js';

const NOW_MS = 1_000_000;
const STAYS = { draining: false, forced: false };
const GOES = { draining: true, forced: false };
const FORCED = { draining: true, forced: true };
type Tolerations = readonly MessageInitShape<typeof TolerationSchema>[];

function movingUnder(
  node: MessageInitShape<typeof NodeRecordSchema>,
  tolerations: Tolerations = [],
  nodeId = 'node-1',
) {
  const record = create(NodeRecordSchema, {
    id: 'node-1',
    createdAt: timestampFromMs(NOW_MS - 60_000),
    ...node,
  });
  const version = create(VersionRecordSchema, {
    version: 1,
    template: { placement: { tolerations: [...tolerations] } },
  });
  const view = {
    node: (id: string) => (id === 'node-1' ? { value: record, revision: 1n } : undefined),
    version: () => version,
  };
  return movingOf(view, { nodeId, uid: 'u', version: 1 }, NOW_MS);
}

const drain = (startedMs: number, deadlineMs: number | undefined, force: boolean) => ({
  draining: true,
  drain: create(DrainRecordSchema, {
    startedAt: timestampFromMs(NOW_MS + startedMs),
    ...(deadlineMs === undefined ? {} : { deadline: timestampFromMs(NOW_MS + deadlineMs) }),
    force,
  }),
});

describe('who has to leave a node that is being drained', () => {
  it.each([
    { name: 'nobody leaves a node in use', node: {}, is: STAYS },
    { name: 'a drain without a record', node: { draining: true }, is: GOES },
    { name: 'without end', node: drain(-5, undefined, false), is: GOES },
    { name: 'forced at once', node: drain(-5, undefined, true), is: FORCED },
    { name: 'before its deadline', node: drain(-5, 10, false), is: GOES },
    { name: 'past its deadline, until it is ended', node: drain(-5, -1, false), is: GOES },
    { name: 'forced, before its deadline', node: drain(-5, 10, true), is: { ...GOES, nextMs: 10 } },
    { name: 'forced, at its deadline', node: drain(-5, 0, true), is: FORCED },
    {
      name: 'forced, and the clock has gone back',
      node: drain(90_000, 100_000, true),
      is: { ...GOES, nextMs: 10_000 },
    },
    { name: 'a drain that failed', node: { ...drain(-5, -1, false), draining: false }, is: STAYS },
  ])('$name', ({ node, is }) => {
    expect(movingUnder(node)).toEqual(is);
  });

  it('a replica without a node has none to leave', () => {
    expect(movingUnder({ draining: true }, [], '')).toEqual(STAYS);
    expect(movingUnder({ draining: true }, [], 'node-gone')).toEqual(STAYS);
  });

  it('a drain without a deadline has no time left to tell', () => {
    expect(drainLeftMs(create(DrainRecordSchema), NOW_MS)).toBeUndefined();
  });
});

const spot = { key: 'spot', value: 'yes', effect: Effect.NO_EXECUTE };
const aged = (ageMs: number, ...taints: (typeof spot)[]) => ({
  taints,
  taintsSince: Object.fromEntries(
    taints.map(({ key, effect }) => [`${key}:${effect}`, timestampFromMs(NOW_MS - ageMs)]),
  ),
});
const forMs = (periodMs: number) => ({
  key: 'spot',
  operator: Operator.EXISTS,
  tolerationPeriod: durationFromMs(periodMs),
});

describe('who has to leave a node with a NO_EXECUTE taint', () => {
  it.each([
    { name: 'one that tolerates nothing', node: aged(0, spot), tolerations: [], is: GOES },
    {
      name: 'one that tolerates another value',
      node: aged(0, spot),
      tolerations: [{ key: 'spot', value: 'no' }],
      is: GOES,
    },
    {
      name: 'one that tolerates it for ever',
      node: aged(9_999, spot),
      tolerations: [{ key: 'spot', value: 'yes' }],
      is: STAYS,
    },
    {
      name: 'one in its period',
      node: aged(300, spot),
      tolerations: [forMs(1_000)],
      is: { ...STAYS, nextMs: 700 },
    },
    {
      name: 'one whose period has passed',
      node: aged(1_000, spot),
      tolerations: [forMs(1_000)],
      is: GOES,
    },
    { name: 'a period of nothing', node: aged(0, spot), tolerations: [forMs(0)], is: GOES },
    {
      name: 'the longest period counts',
      node: aged(300, spot),
      tolerations: [forMs(1_000), forMs(400)],
      is: { ...STAYS, nextMs: 700 },
    },
    {
      name: 'for ever is the longest',
      node: aged(300, spot),
      tolerations: [forMs(1), { key: 'spot', value: 'yes' }],
      is: STAYS,
    },
    {
      name: 'the first taint that ends it counts',
      node: aged(300, spot, { ...spot, key: 'b' }),
      tolerations: [
        forMs(1_000),
        { key: 'b', value: 'yes', tolerationPeriod: durationFromMs(500) },
      ],
      is: { ...STAYS, nextMs: 200 },
    },
    {
      name: 'other effects move nobody',
      node: { taints: [{ ...spot, effect: Effect.NO_SCHEDULE }] },
      tolerations: [],
      is: STAYS,
    },
    {
      name: 'a taint of unknown age is as old as its node',
      node: { taints: [spot] },
      tolerations: [forMs(60_500)],
      is: { ...STAYS, nextMs: 500 },
    },
    {
      name: 'a clock that went back',
      node: aged(-90_000, spot),
      tolerations: [forMs(1_000)],
      is: { ...STAYS, nextMs: 1_000 },
    },
  ])('$name', ({ node, tolerations, is }) => {
    expect(movingUnder(node, tolerations)).toEqual(is);
  });
});
