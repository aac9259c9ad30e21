import { create, type MessageInitShape } from '@bufbuild/protobuf';
import { durationFromMs, timestampFromMs } from '@bufbuild/protobuf/wkt';
import {
  Taint_Effect as Effect,
  Toleration_Operator as Operator,
  type TolerationSchema,
} from '@cloudless/api';
import { DrainRecordSchema, NodeRecordSchema, VersionRecordSchema } from '@cloudless/api/store';
import { getRemainingDrainMs, findEviction } from './eviction.js';

const NOW_MS = 1_000_000;
const NOT_EVICTED = { draining: false, forced: false };
const EVICTED = { draining: true, forced: false };
const FORCED_EVICTION = { draining: true, forced: true };
type Tolerations = readonly MessageInitShape<typeof TolerationSchema>[];

function findEvictionUnder(
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
  return findEviction(view, { nodeId, uid: 'u', version: 1 }, NOW_MS);
}

/** A draining node; start and deadline of the drain are milliseconds relative to now. */
const drainingNode = (startedMs: number, deadlineMs: number | undefined, force: boolean) => ({
  draining: true,
  drain: create(DrainRecordSchema, {
    startedAt: timestampFromMs(NOW_MS + startedMs),
    ...(deadlineMs === undefined ? {} : { deadline: timestampFromMs(NOW_MS + deadlineMs) }),
    force,
  }),
});

describe('findEviction for a drain', () => {
  it.each([
    {
      name: 'keeps a replica on a node that is not draining',
      node: {},
      expected: NOT_EVICTED,
    },
    {
      name: 'evicts from a draining node without a drain record',
      node: { draining: true },
      expected: EVICTED,
    },
    {
      name: 'evicts from a draining node without a deadline',
      node: drainingNode(-5, undefined, false),
      expected: EVICTED,
    },
    {
      name: 'forces the eviction for a forced drain without a deadline',
      node: drainingNode(-5, undefined, true),
      expected: FORCED_EVICTION,
    },
    {
      name: 'evicts before the deadline of the drain',
      node: drainingNode(-5, 10, false),
      expected: EVICTED,
    },
    {
      name: 'evicts after the deadline until the drain is marked as failed',
      node: drainingNode(-5, -1, false),
      expected: EVICTED,
    },
    {
      name: 'evicts without force before the deadline of a forced drain',
      node: drainingNode(-5, 10, true),
      expected: { ...EVICTED, changesInMs: 10 },
    },
    {
      name: 'forces the eviction at the deadline of a forced drain',
      node: drainingNode(-5, 0, true),
      expected: FORCED_EVICTION,
    },
    {
      name: 'forces the eviction after at most the period of the drain when the clock was set back',
      node: drainingNode(90_000, 100_000, true),
      expected: { ...EVICTED, changesInMs: 10_000 },
    },
    {
      name: 'keeps a replica after a failed drain',
      node: { ...drainingNode(-5, -1, false), draining: false },
      expected: NOT_EVICTED,
    },
  ])('$name', ({ node, expected }) => {
    expect(findEvictionUnder(node)).toEqual(expected);
  });

  it('keeps a replica that has no node or whose node has no record', () => {
    expect(findEvictionUnder({ draining: true }, [], '')).toEqual(NOT_EVICTED);
    expect(findEvictionUnder({ draining: true }, [], 'node-gone')).toEqual(NOT_EVICTED);
  });
});

describe('getRemainingDrainMs', () => {
  it('returns undefined for a drain without a deadline', () => {
    expect(getRemainingDrainMs(create(DrainRecordSchema), NOW_MS)).toBeUndefined();
  });
});

const spot = { key: 'spot', value: 'yes', effect: Effect.NO_EXECUTE };
const taintedFor = (ageMs: number, ...taints: (typeof spot)[]) => ({
  taints,
  taintsSince: Object.fromEntries(
    taints.map(({ key, effect }) => [`${key}:${effect}`, timestampFromMs(NOW_MS - ageMs)]),
  ),
});
const toleratedFor = (periodMs: number) => ({
  key: 'spot',
  operator: Operator.EXISTS,
  tolerationPeriod: durationFromMs(periodMs),
});

describe('findEviction for a NO_EXECUTE taint', () => {
  it.each([
    {
      name: 'evicts a replica without tolerations',
      node: taintedFor(0, spot),
      tolerations: [],
      expected: EVICTED,
    },
    {
      name: 'evicts a replica that tolerates another value',
      node: taintedFor(0, spot),
      tolerations: [{ key: 'spot', value: 'no' }],
      expected: EVICTED,
    },
    {
      name: 'keeps a replica that tolerates the taint without a period',
      node: taintedFor(9_999, spot),
      tolerations: [{ key: 'spot', value: 'yes' }],
      expected: NOT_EVICTED,
    },
    {
      name: 'keeps a replica during its toleration period',
      node: taintedFor(300, spot),
      tolerations: [toleratedFor(1_000)],
      expected: { ...NOT_EVICTED, changesInMs: 700 },
    },
    {
      name: 'evicts a replica after its toleration period',
      node: taintedFor(1_000, spot),
      tolerations: [toleratedFor(1_000)],
      expected: EVICTED,
    },
    {
      name: 'evicts a replica with a toleration period of 0',
      node: taintedFor(0, spot),
      tolerations: [toleratedFor(0)],
      expected: EVICTED,
    },
    {
      name: 'applies the longest of several toleration periods',
      node: taintedFor(300, spot),
      tolerations: [toleratedFor(1_000), toleratedFor(400)],
      expected: { ...NOT_EVICTED, changesInMs: 700 },
    },
    {
      name: 'prefers a toleration without a period to one with a period',
      node: taintedFor(300, spot),
      tolerations: [toleratedFor(1), { key: 'spot', value: 'yes' }],
      expected: NOT_EVICTED,
    },
    {
      name: 'applies the taint whose toleration ends first',
      node: taintedFor(300, spot, { ...spot, key: 'b' }),
      tolerations: [
        toleratedFor(1_000),
        { key: 'b', value: 'yes', tolerationPeriod: durationFromMs(500) },
      ],
      expected: { ...NOT_EVICTED, changesInMs: 200 },
    },
    {
      name: 'keeps a replica on a node with a NO_SCHEDULE taint',
      node: { taints: [{ ...spot, effect: Effect.NO_SCHEDULE }] },
      tolerations: [],
      expected: NOT_EVICTED,
    },
    {
      name: 'uses the age of the node for a taint of unknown age',
      node: { taints: [spot] },
      tolerations: [toleratedFor(60_500)],
      expected: { ...NOT_EVICTED, changesInMs: 500 },
    },
    {
      name: 'keeps a replica for at most its toleration period when the clock was set back',
      node: taintedFor(-90_000, spot),
      tolerations: [toleratedFor(1_000)],
      expected: { ...NOT_EVICTED, changesInMs: 1_000 },
    },
  ])('$name', ({ node, tolerations, expected }) => {
    expect(findEvictionUnder(node, tolerations)).toEqual(expected);
  });
});
