import { create } from '@bufbuild/protobuf';
import fc from 'fast-check';
import { ReplicaStatus_Phase as Phase } from '@cloudless/api';
import { ReplicaRecordSchema, type ReplicaRecord } from '@cloudless/api/store';
import { toNodeId, toReplicaId, toWorkloadId } from '@cloudless/base';
import type { Stored } from '@cloudless/cluster-state';
import { createCluster, type PlacementRequest } from '@cloudless/scheduler';
import { isNominated } from '../preemption/nominations.js';
import {
  decideAny,
  decideWaiting,
  type PlacementDecision,
  type ReplicaDecision,
} from './placement-decision.js';
import { WaitingReplicas } from './waiting-replicas.js';

const request: PlacementRequest = {
  workloadId: toWorkloadId('web'),
  namespace: 'default',
  resources: { cpuMillis: 100, memoryBytes: 1 },
};
const NODES = ['n1', 'n2', 'n3'];

/** The room of each node, and waiting replicas of which some hold a part of the room already. */
const arbCase = fc.record({
  rooms: fc.array(fc.integer({ min: 0, max: 4 }), { minLength: 3, maxLength: 3 }),
  limit: fc.integer({ min: 1, max: 8 }),
  replicas: fc.uniqueArray(
    fc.record({
      sequence: fc.integer({ min: 1, max: 60 }),
      reason: fc.constantFrom(
        'waits for a node',
        'no node fits: needs 100m CPU, more than is free: 3 of 3 nodes',
        'no node fits: needs 100m CPU, more than the node has: 3 of 3 nodes',
      ),
      nominatedNodeId: fc.constantFrom('', '', '', ...NODES),
    }),
    { selector: ({ sequence }) => sequence, minLength: 1, maxLength: 24 },
  ),
});
type Case = typeof arbCase extends fc.Arbitrary<infer Value> ? Value : never;

function openCase({ rooms, replicas }: Case) {
  const cluster = createCluster();
  const left = new Map<string, number>();
  for (const [index, id] of NODES.entries()) {
    const room = rooms[index] ?? 0;
    left.set(id, room);
    cluster.upsertNode({
      id: toNodeId(id),
      capacity: { cpuMillis: 100 * room, memoryBytes: 1_000 },
    });
  }
  const records = replicas.map(({ sequence, reason, nominatedNodeId }) => {
    // A nomination holds resources, so no node has more of them than fit.
    const room = left.get(nominatedNodeId) ?? 0;
    left.set(nominatedNodeId, room - 1);
    return create(ReplicaRecordSchema, {
      id: `web-${sequence}`,
      uid: 'web',
      sequence: BigInt(sequence),
      desiredRunning: true,
      phase: Phase.PENDING,
      ...(room > 0 ? { nominatedNodeId, reason: `waits on ${nominatedNodeId}` } : { reason }),
    });
  });
  for (const replica of records.filter(isNominated))
    cluster.reserve({
      ...request,
      replicaId: toReplicaId(replica.id),
      nodeId: toNodeId(replica.nominatedNodeId),
    });
  return { cluster, records };
}

/** Lists and sorts all waiting replicas for each decision, as a simple placer would do. */
function decideSimply(
  cluster: ReturnType<typeof createCluster>,
  replicas: readonly Stored<ReplicaRecord>[],
  limit: number,
): PlacementDecision {
  const sorted = [...replicas].sort((a, b) => Number(a.value.sequence - b.value.sequence));
  if (sorted.length > limit) {
    const decision = decideAny(cluster, request, sorted.slice(0, limit), limit);
    if (decision.refusal === undefined) return decision;
  }
  return decideAny(cluster, request, sorted, limit);
}

function decideWithLists(
  cluster: ReturnType<typeof createCluster>,
  records: readonly ReplicaRecord[],
  limit: number,
) {
  const waiting = new WaitingReplicas();
  const byId = new Map(records.map((value) => [value.id, { value, revision: 1n }]));
  for (const record of records) waiting.add(record);
  const toStored = (ids: readonly string[]): Stored<ReplicaRecord>[] =>
    ids.flatMap((id) => byId.get(id) ?? []);
  const skip = (): boolean => false;
  const decided = decideWaiting(
    cluster,
    request,
    {
      size: waiting.size,
      listFirst: (count) => toStored(waiting.listFirst(count, skip)),
      listNominated: () => toStored(waiting.listNominated(skip)),
      listWithOtherReason: (reason, count) =>
        toStored(waiting.listWithOtherReason(reason, count, skip)),
    },
    limit,
  );
  return { ...decided, listedCount: waiting.listedCount };
}

/** The decisions that change a record, as `id: node or reason`. */
const describeChanges = (decided: readonly ReplicaDecision[]): readonly string[] =>
  decided.flatMap(({ replica, outcome }) => {
    if (!('reason' in outcome)) return [`${replica.value.id}: ${outcome.nodeId}`];
    return outcome.reason === replica.value.reason
      ? []
      : [`${replica.value.id}: ${outcome.reason}`];
  });
const countPlaced = ({ decided }: PlacementDecision): number =>
  decided.filter(({ outcome }) => !('reason' in outcome)).length;

describe('decideWaiting', () => {
  it('places and refuses the same replicas as a decision that lists and sorts all of them', () => {
    fc.assert(
      fc.property(arbCase, (testCase) => {
        const { cluster, records } = openCase(testCase);
        const stored = records.map((value) => ({ value, revision: 1n }));
        const expected = decideSimply(cluster, stored, testCase.limit);
        const { decision, isComplete } = decideWithLists(cluster, records, testCase.limit);
        const placed = countPlaced(expected);
        const changes = describeChanges(decision.decided);
        const expectedChanges = describeChanges(expected.decided);
        expect(changes).toEqual(expectedChanges.slice(0, placed + testCase.limit));
        expect(decision.refusal).toBe(expected.refusal);
        const isAll =
          expected.refusal === undefined
            ? placed === records.length
            : changes.length === expectedChanges.length;
        expect(isComplete).toBe(isAll);
      }),
      { numRuns: 500 },
    );
  });

  it('reads no more records of 5,000 refused replicas than of 50', () => {
    const counts = [50, 5_000].map((count) => {
      const { cluster, records } = openCase({
        rooms: [0, 0, 0],
        limit: 10,
        replicas: Array.from({ length: count }, (_, index) => ({
          sequence: index + 1,
          reason: 'no node fits: needs 100m CPU, more than the node has: 3 of 3 nodes',
          nominatedNodeId: '',
        })),
      });
      const { decision, isComplete, listedCount } = decideWithLists(cluster, records, 10);
      expect(decision.refusal).toContain(`no node fits ${count} replicas: `);
      expect({ decided: decision.decided, isComplete }).toEqual({ decided: [], isComplete: true });
      return listedCount;
    });
    expect(counts[1]).toBe(counts[0]);
    expect(counts[0]).toBeLessThanOrEqual(20);
  });
});
