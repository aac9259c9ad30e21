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

describe('findEviction on a draining node', () => {
  it.each([
    { name: 'keeps a replica on a node without a drain', node: {}, is: STAYS },
    { name: 'evicts for a drain without a drain record', node: { draining: true }, is: GOES },
    { name: 'evicts for a drain without a deadline', node: drain(-5, undefined, false), is: GOES },
    {
      name: 'forces the eviction for a forced drain without a deadline',
      node: drain(-5, undefined, true),
      is: FORCED,
    },
    { name: 'evicts before the deadline', node: drain(-5, 10, false), is: GOES },
    {
      name: 'evicts after the deadline until the drain is marked as failed',
      node: drain(-5, -1, false),
      is: GOES,
    },
    {
      name: 'evicts without force before the deadline of a forced drain',
      node: drain(-5, 10, true),
      is: { ...GOES, nextMs: 10 },
    },
    {
      name: 'forces the eviction at the deadline of a forced drain',
      node: drain(-5, 0, true),
      is: FORCED,
    },
    {
      name: 'waits no longer than the drain period after the clock was set back',
      node: drain(90_000, 100_000, true),
      is: { ...GOES, nextMs: 10_000 },
    },
    {
      name: 'keeps a replica after a failed drain',
      node: { ...drain(-5, -1, false), draining: false },
      is: STAYS,
    },
  ])('$name', ({ node, is }) => {
    expect(movingUnder(node)).toEqual(is);
  });

  it('keeps a replica that has no node or whose node has no record', () => {
    expect(movingUnder({ draining: true }, [], '')).toEqual(STAYS);
    expect(movingUnder({ draining: true }, [], 'node-gone')).toEqual(STAYS);
  });

  it('getRemainingDrainMs returns undefined for a drain without a deadline', () => {
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

describe('findEviction on a node with a NO_EXECUTE taint', () => {
  it.each([
    {
      name: 'evicts a replica without tolerations',
      node: aged(0, spot),
      tolerations: [],
      is: GOES,
    },
    {
      name: 'evicts a replica that tolerates another value',
      node: aged(0, spot),
      tolerations: [{ key: 'spot', value: 'no' }],
      is: GOES,
    },
    {
      name: 'keeps a replica that tolerates the taint without a period',
      node: aged(9_999, spot),
      tolerations: [{ key: 'spot', value: 'yes' }],
      is: STAYS,
    },
    {
      name: 'keeps a replica during its toleration period',
      node: aged(300, spot),
      tolerations: [forMs(1_000)],
      is: { ...STAYS, nextMs: 700 },
    },
    {
      name: 'evicts a replica after its toleration period',
      node: aged(1_000, spot),
      tolerations: [forMs(1_000)],
      is: GOES,
    },
    {
      name: 'evicts a replica with a toleration period of 0',
      node: aged(0, spot),
      tolerations: [forMs(0)],
      is: GOES,
    },
    {
      name: 'applies the longest of several toleration periods',
      node: aged(300, spot),
      tolerations: [forMs(1_000), forMs(400)],
      is: { ...STAYS, nextMs: 700 },
    },
    {
      name: 'prefers a toleration without a period to one with a period',
      node: aged(300, spot),
      tolerations: [forMs(1), { key: 'spot', value: 'yes' }],
      is: STAYS,
    },
    {
      name: 'applies the taint whose toleration ends first',
      node: aged(300, spot, { ...spot, key: 'b' }),
      tolerations: [
        forMs(1_000),
        { key: 'b', value: 'yes', tolerationPeriod: durationFromMs(500) },
      ],
      is: { ...STAYS, nextMs: 200 },
    },
    {
      name: 'ignores taints with other effects',
      node: { taints: [{ ...spot, effect: Effect.NO_SCHEDULE }] },
      tolerations: [],
      is: STAYS,
    },
    {
      name: 'uses the age of the node for a taint of unknown age',
      node: { taints: [spot] },
      tolerations: [forMs(60_500)],
      is: { ...STAYS, nextMs: 500 },
    },
    {
      name: 'waits no longer than the toleration period after the clock was set back',
      node: aged(-90_000, spot),
      tolerations: [forMs(1_000)],
      is: { ...STAYS, nextMs: 1_000 },
    },
  ])('$name', ({ node, tolerations, is }) => {
    expect(movingUnder(node, tolerations)).toEqual(is);
  });
});
