import { create } from '@bufbuild/protobuf';
import { ReplicaStatus_Phase as Phase, WorkloadSpecSchema } from '@cloudless/api';
import {
  ReplicaRecordSchema,
  VersionRecordSchema,
  WorkloadRecordSchema,
  type ReplicaRecord,
} from '@cloudless/api/store';
import { PendingBatches, type PendingView } from './pending-batches.js';
import { WaitingReplicas } from './waiting-replicas.js';

interface WaitingWorkload {
  readonly uid: string;
  readonly priority?: number;
  readonly createdAt?: number;
}

type Fields = Partial<
  Pick<
    ReplicaRecord,
    | 'version'
    | 'onlyNodeId'
    | 'nodeId'
    | 'nominatedNodeId'
    | 'phase'
    | 'reason'
    | 'desiredRunning'
    | 'sequence'
  >
>;

/** A view of workloads that counts how often the whole list of waiting replicas is read. */
function aView(workloads: readonly WaitingWorkload[], waiting: readonly ReplicaRecord[] = []) {
  const byUid = new Map(workloads.map((workload) => [workload.uid, workload]));
  const reads = { unplaced: 0 };
  const view: PendingView = {
    unplaced: () => {
      reads.unplaced += 1;
      return waiting.map((value) => ({ value, revision: 1n }));
    },
    workload: (uid) => ({
      value: create(WorkloadRecordSchema, {
        uid,
        createdAt: { seconds: BigInt(byUid.get(uid)?.createdAt ?? 0) },
      }),
      revision: 1n,
    }),
    version: (uid, version) => {
      const template = create(WorkloadSpecSchema, { priority: byUid.get(uid)?.priority ?? 50 });
      return create(VersionRecordSchema, { version, template });
    },
  };
  return { view: () => view, reads };
}

const aReplica = (uid: string, sequence: number, fields: Fields = {}): ReplicaRecord =>
  create(ReplicaRecordSchema, {
    id: `${uid}-${sequence}`,
    uid,
    version: 1,
    desiredRunning: true,
    phase: Phase.PENDING,
    ...fields,
  });
const createdChange = (after: ReplicaRecord) => ({ kind: 'replica' as const, id: after.id, after });
const updatedChange = (before: ReplicaRecord, fields: Fields) => ({
  ...createdChange(Object.assign(aReplica(before.uid, 0), before, fields)),
  before,
});

/** Returns the workload ids of all batches of a round, and sets each batch aside. */
function drainRound(batches: PendingBatches): string[] {
  const uids: string[] = [];
  for (let batch = batches.next(); batch !== undefined; batch = batches.next()) {
    uids.push(batch.uid);
    batches.setAside(batch);
  }
  return uids;
}

describe('PendingBatches', () => {
  it('returns batches by priority, then by age of the workload', () => {
    const workloads = [
      { uid: 'young', createdAt: 20 },
      { uid: 'low', priority: 10, createdAt: 1 },
      { uid: 'old', createdAt: 10 },
      { uid: 'high', priority: 90, createdAt: 30 },
    ];
    const waiting = workloads.map(({ uid }) => aReplica(uid, 1));
    const batches = new PendingBatches(aView(workloads, waiting).view);
    batches.beginRound();
    expect(drainRound(batches)).toEqual(['high', 'old', 'young', 'low']);
    batches.beginRound();
    expect(drainRound(batches)).toEqual(['high', 'old', 'young', 'low']);
  });

  it('groups replicas by workload and version, and separates replicas that are bound to one node', () => {
    const waiting = [
      aReplica('web', 1),
      aReplica('web', 2),
      aReplica('web', 3, { version: 2 }),
      aReplica('web', 4, { onlyNodeId: 'node-a' }),
    ];
    const batches = new PendingBatches(aView([{ uid: 'web' }], waiting).view);
    batches.beginRound();
    const seen: unknown[] = [];
    for (let batch = batches.next(); batch !== undefined; batch = batches.next()) {
      seen.push({ version: batch.version, bound: batch.bound, ids: batch.listFirst() });
      batches.setAside(batch);
    }
    expect(seen).toEqual([
      { version: 1, bound: false, ids: ['web-1', 'web-2'] },
      { version: 1, bound: true, ids: ['web-4'] },
      { version: 2, bound: false, ids: ['web-3'] },
    ]);
  });

  it('returns a batch until it is empty', () => {
    const [first, second] = [aReplica('web', 1), aReplica('web', 2)];
    const batches = new PendingBatches(aView([{ uid: 'web' }], [first, second]).view);
    batches.beginRound();
    batches.apply([updatedChange(first, { nodeId: 'node-a', phase: Phase.ASSIGNED })]);
    expect(batches.next()?.listFirst()).toEqual(['web-2']);
    batches.apply([{ kind: 'replica', id: second.id, before: second }]);
    expect(batches.next()).toBeUndefined();
  });

  it('does not return a batch again when only the reason of a replica changes', () => {
    const replica = aReplica('web', 1);
    const batches = new PendingBatches(aView([{ uid: 'web' }], [replica]).view);
    batches.beginRound();
    batches.setAside(batches.next()!);
    batches.apply([updatedChange(replica, { reason: 'no node fits: cpu: 1 of 1 nodes' })]);
    expect(batches.next()).toBeUndefined();
  });

  it('inserts replicas that start to wait during a round in order of urgency', () => {
    const workloads = [
      { uid: 'a', priority: 10 },
      { uid: 'b', priority: 5 },
      { uid: 'late', priority: 90 },
      { uid: 'c', priority: 7 },
    ];
    const batches = new PendingBatches(aView(workloads, [aReplica('a', 1), aReplica('b', 1)]).view);
    batches.beginRound();
    batches.setAside(batches.next()!);
    batches.apply([
      createdChange(aReplica('late', 1)),
      createdChange(aReplica('c', 1)),
      createdChange(aReplica('a', 2)),
    ]);
    expect(drainRound(batches)).toEqual(['late', 'a', 'c', 'b']);
  });

  it('removes a replica that was stopped before its placement', () => {
    const replica = aReplica('web', 1);
    const batches = new PendingBatches(aView([{ uid: 'web' }], [replica]).view);
    batches.apply([updatedChange(replica, { desiredRunning: false })]);
    batches.beginRound();
    expect(batches.next()).toBeUndefined();
  });

  it('reads the list of waiting replicas only once for a thousand batches', () => {
    const workloads = Array.from({ length: 1_000 }, (_, index) => ({
      uid: `w${String(index).padStart(4, '0')}`,
    }));
    const { view, reads } = aView(
      workloads,
      workloads.map(({ uid }) => aReplica(uid, 1)),
    );
    const batches = new PendingBatches(view);
    batches.beginRound();
    expect(drainRound(batches)).toEqual(workloads.map(({ uid }) => uid));
    expect(reads.unplaced).toBe(1);
  });
});

describe('WaitingReplicas', () => {
  it('keeps the other replicas with the reason of a nominated replica that leaves', () => {
    const waiting = new WaitingReplicas();
    const reason = 'the scheduler cannot decide';
    const nominated = aReplica('web', 1, { sequence: 1n, reason, nominatedNodeId: 'node-1' });
    const other = aReplica('web', 2, { sequence: 2n, reason });
    waiting.add(nominated);
    waiting.add(other);
    expect(waiting.delete(nominated)).toBe(true);
    expect(waiting.listFirst(9, () => false)).toEqual([other.id]);
    expect(waiting.delete(other)).toBe(true);
    expect(waiting.size).toBe(0);
  });

  it.each([
    { priority: 50, createdAt: 10, waits: true },
    { priority: 50, createdAt: 9, waits: false },
    { priority: 51, createdAt: 10, waits: false },
    { priority: 49, createdAt: 9, waits: true },
  ])(
    'has replicas as urgent as those of priority $priority, created at $createdAt: $waits',
    ({ priority, createdAt, waits }) => {
      const { view } = aView([{ uid: 'web', createdAt: 10 }], [aReplica('web', 1)]);
      const pending = new PendingBatches(view);
      expect(pending.hasAsUrgent({ priority, createdAt })).toBe(waits);
    },
  );

  it('has urgent replicas while their decision is being committed, until they have a node', () => {
    const waiting = aReplica('web', 1);
    const pending = new PendingBatches(aView([{ uid: 'web' }], [waiting]).view);
    pending.beginRound();
    const batch = pending.next();
    if (batch !== undefined) pending.beginCommit(batch, [waiting]);
    expect(pending.hasAsUrgent({ priority: 50, createdAt: 0 })).toBe(true);
    const after = aReplica('web', 1, { nodeId: 'node-1' });
    pending.apply([{ kind: 'replica', id: 'web/1', before: waiting, after }]);
    expect(pending.hasAsUrgent({ priority: 50, createdAt: 0 })).toBe(false);
  });
});
