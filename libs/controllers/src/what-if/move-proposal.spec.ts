import fc from 'fast-check';
import { create } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { WorkloadSpec_Mode as Mode, type ProposeMovesResponse } from '@cloudless/api';
import { ControlRecordSchema } from '@cloudless/api/store';
import type { SnapshotRecords } from '@cloudless/cluster-state';
import { findRequestedEviction } from '../drain/eviction.js';
import { aNodeRecord, aSnapshot } from '../testing/records.js';
import { proposeMoves } from './move-proposal.js';
import { createRecordSource } from './record-source.js';

const cpu = (cpuMillis: number) => ({ resources: { requests: { cpuMillis } } });
const nodes = ['a1', 'a2', 'b1', 'c1'].map((id) => aNodeRecord(id, id.slice(0, 1)));

function propose(records: SnapshotRecords, maxMoves = 0, namespace = ''): ProposeMovesResponse {
  const source = createRecordSource(records, { clock: { wallTime: () => 0 } });
  const steps = proposeMoves(source, { maxMoves, namespace });
  for (;;) {
    const next = steps.next();
    if (next.done === true) return next.value;
  }
}
const list = ({ moves }: ProposeMovesResponse) =>
  moves.map(({ replicaId, fromNodeId, toNodeId, gain }) =>
    [replicaId, fromNodeId, toNodeId, gain].join(' '),
  );

describe('proposeMoves', () => {
  it('moves replicas from the fullest zone to zones with fewer, the largest gain first', () => {
    const records = aSnapshot(nodes, { web: { spec: {}, on: ['a1', 'a1', 'a2', 'a2'] } });
    expect(propose(records)).toMatchObject({
      gain: 7,
      notExamined: 0,
      moves: [
        { gain: 4, reason: 'zone b has 0 replicas and zone a has 4' },
        { gain: 3, reason: 'zone c has 0 replicas and zone a has 3' },
      ],
    });
  });

  it('moves replicas between the nodes of one zone', () => {
    const records = aSnapshot(nodes.slice(0, 2), { web: { spec: {}, on: ['a1', 'a1', 'a1'] } });
    expect(list(propose(records))).toEqual(['web-3 a1 a2 3']);
  });

  it.each([
    { name: 'even workloads', workload: { spec: {}, on: ['a1', 'b1', 'c1'] } },
    { name: 'a difference of one replica', workload: { spec: {}, on: ['a1', 'a2', 'b1', 'c1'] } },
    { name: 'GLOBAL workloads', workload: { spec: { mode: Mode.GLOBAL }, on: ['a1', 'a2'] } },
    {
      name: 'replicas for which no other node has capacity',
      workload: { spec: cpu(2_000), on: ['a1', 'a1'] },
      full: { spec: cpu(3_000), on: ['a2', 'b1', 'c1'] },
    },
  ])('proposes nothing for $name', ({ workload, full }) => {
    const records = aSnapshot(nodes, { web: workload, ...(full === undefined ? {} : { full }) });
    expect(list(propose(records))).toEqual([]);
  });

  it.each([
    { name: 'the replica keeps its place until its replacement is ready', rollout: {}, moves: [] },
    {
      name: 'the replica ends before its replacement is placed',
      rollout: { maxSurge: 0, maxUnavailable: 1 },
      moves: ['web-4 a1 a2 2'],
    },
  ])('proposes the node that the replacement gets when $name', ({ rollout, moves }) => {
    const web = { spec: { ...cpu(658), rollout }, on: ['b1', 'a1', 'c1', 'a1'] };
    const other = { spec: cpu(500), on: ['b1'] };
    expect(list(propose(aSnapshot(nodes, { web, other })))).toEqual(moves);
  });

  it('keeps the largest number of moves, and the namespace', () => {
    const records = aSnapshot(nodes, { web: { spec: {}, on: ['a1', 'a1', 'a2', 'a2'] } });
    expect(list(propose(records, 1))).toHaveLength(1);
    expect(list(propose(records, 0, 'other'))).toEqual([]);
  });

  it('never exceeds the capacity of a node, and makes the most even workload no worse', () => {
    const arbOn = fc.array(fc.constantFrom('a1', 'a2', 'b1', 'c1'), { minLength: 1, maxLength: 6 });
    fc.assert(
      fc.property(fc.array(arbOn, { maxLength: 4 }), (all) => {
        const workloads = Object.fromEntries(
          all.map((on, index) => [`w${index}`, { spec: cpu(600), on }]),
        );
        const used = new Map<string, number>();
        const book = (id: string, count: number) => used.set(id, (used.get(id) ?? 0) + count);
        for (const on of all) for (const id of on) book(id, 1);
        const fullBefore = new Map(used);
        for (const { fromNodeId, toNodeId, gain } of propose(aSnapshot(nodes, workloads)).moves) {
          expect(gain).toBeGreaterThanOrEqual(2);
          book(fromNodeId, -1);
          book(toNodeId, 1);
        }
        for (const [id, count] of used)
          expect(count).toBeLessThanOrEqual(Math.max(6, fullBefore.get(id) ?? 0));
      }),
      { numRuns: 30 },
    );
  });
});

describe('findRequestedEviction', () => {
  const control = create(ControlRecordSchema, {
    eviction: { replicaIds: ['web-1'], nodeIds: ['a1'], until: timestampFromMs(10_000) },
  });

  it.each([
    { nowMs: 4_000, ids: ['web-1'], nodeIds: ['a1'], endsInMs: 6_000 },
    { nowMs: 10_000, ids: [], nodeIds: [], endsInMs: Infinity },
  ])('returns the replicas until the end, at $nowMs ms', ({ nowMs, ids, nodeIds, endsInMs }) => {
    const found = findRequestedEviction(control, nowMs);
    expect([...found.replicaIds]).toEqual(ids);
    expect([...found.nodeIds]).toEqual(nodeIds);
    expect(found.endsInMs).toBe(endsInMs);
  });
});
