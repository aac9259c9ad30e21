import { create } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { ReplicaReportSchema, ReplicaStatus_Phase as Phase } from '@cloudless/api';
import {
  ControlRecordSchema,
  NodeRecordSchema,
  ReplicaRecordSchema,
  WorkloadRecordSchema,
} from '@cloudless/api/store';
import { ApiTestBed } from '../testing/api-test-bed.js';
import { returnNode } from './node-return.js';
import { findTakenBack, putTakenBack } from './take-back.js';

let bed: ApiTestBed;
beforeEach(async () => {
  bed = await ApiTestBed.open();
});
afterEach(() => bed.stop());

/** A report of the lost replica, which runs ready by its start order. */
const HEALTHY = create(ReplicaReportSchema, {
  ...{ replicaId: 'w-1', workloadUid: 'w', containerId: 'c-1' },
  ...{ phase: Phase.RUNNING, ready: true, orderRevision: 1n },
});

interface World {
  readonly lost?: object;
  readonly replacement?: object;
  readonly report?: object;
  readonly workload?: object;
  readonly node?: object;
}

/** Writes a lost replica `w-1` of node-1 and its replacement `w-2`, then takes replicas back. */
async function takeBack({ lost, replacement, report, workload, node }: World) {
  const { state } = bed;
  const common = { uid: 'w', slot: 0, version: 1 };
  await state.commitObserved(
    state
      .transaction()
      .put('node', 'node-1', create(NodeRecordSchema, { id: 'node-1', lost: true, ...node }))
      .put('workload', 'w', create(WorkloadRecordSchema, { uid: 'w', version: 1, ...workload }))
      .put('control', 'w', create(ControlRecordSchema, { uid: 'w', nextSequence: 3n }))
      .createReplica(
        create(ReplicaRecordSchema, {
          ...{ ...common, id: 'w-1', sequence: 1n, nodeId: 'node-1', phase: Phase.FAILED },
          ...{ lost: true, lostAt: timestampFromMs(1), stopReason: 'lost', reason: 'lost' },
          orderRevision: state.view().revision,
          ...lost,
        }),
      )
      .createReplica(
        create(ReplicaRecordSchema, {
          ...{ ...common, id: 'w-2', sequence: 2n, desiredRunning: true, phase: Phase.PENDING },
          ...replacement,
        }),
      ),
  );
  const transaction = state.transaction();
  const reports = [create(ReplicaReportSchema, { ...HEALTHY, ...report })];
  putTakenBack(bed, transaction, 'node-1', findTakenBack(bed, 'node-1', reports).taken);
  return transaction;
}

describe('putTakenBack', () => {
  it('clears the loss, orders the replica to run, and deletes the replacement', async () => {
    const transaction = await takeBack({});
    const orderedBefore = bed.state.view().replica('w-1')?.value.orderRevision ?? 0n;
    await bed.state.commitObserved(transaction);
    const view = bed.state.view();
    const record = view.replica('w-1')?.value;
    expect(record).toMatchObject({
      ...{ lost: false, desiredRunning: true, phase: Phase.RUNNING, ready: true },
      ...{ reason: '', stopReason: '', containerId: 'c-1' },
    });
    expect(record?.lostAt).toBeUndefined();
    expect(record?.orderRevision).toBeGreaterThan(orderedBefore);
    expect(view.replica('w-2')).toBeUndefined();
    expect(view.control('w')?.value.nextSequence).toBe(3n);
  });

  it('takes no replica back in a store that was rolled back, before an operator decides', async () => {
    await takeBack({});
    const { state } = bed;
    state.reportNewerState({ nodeId: 'node-1', epoch: 0n, orderRevision: 1_000_000n });
    await returnNode(
      bed,
      'node-1',
      () => undefined,
      () => [HEALTHY],
    );
    expect(state.view().node('node-1')?.value.lost).toBe(false);
    expect(state.view().replica('w-1')?.value.lost).toBe(true);
    expect(state.view().replica('w-2')).toBeDefined();
  });

  it.each([
    { name: 'the replacement', kind: 'replica' as const },
    { name: 'the control record', kind: 'control' as const },
  ])('conflicts when $name has changed', async ({ kind }) => {
    const transaction = await takeBack({});
    const { state } = bed;
    const replacement = state.view().replica('w-2');
    if (replacement === undefined) throw new Error('w-2 does not exist');
    await state.commitObserved(
      kind === 'replica'
        ? state
            .transaction()
            .updateReplica(
              replacement,
              create(ReplicaRecordSchema, { ...replacement.value, nodeId: 'node-2' }),
            )
        : state.transaction().put('control', 'w', create(ControlRecordSchema, { uid: 'w' })),
    );
    await expect(state.commitObserved(transaction)).rejects.toMatchObject({ kind: 'conflict' });
  });

  it.each<{ readonly name: string } & World>([
    { name: 'is EXCLUSIVE', lost: { stopAfter: { seconds: 4n } } },
    {
      name: 'belongs to a workload that is EXCLUSIVE by now',
      replacement: { stopAfter: { seconds: 4n } },
    },
    { name: 'is not ready', report: { ready: false } },
    { name: 'is stopping', report: { phase: Phase.STOPPING } },
    { name: 'has not confirmed its start order', report: { orderRevision: 0n } },
    { name: 'has its stop order already', report: { orderRevision: 1_000n } },
    { name: 'runs another version than the replacement', replacement: { version: 2 } },
    { name: 'has a replacement with a node', replacement: { nodeId: 'node-2' } },
    { name: 'has a replacement with a nomination', replacement: { nominatedNodeId: 'node-2' } },
    { name: 'has a replacement for another node', replacement: { onlyNodeId: 'node-2' } },
    { name: 'has no replacement for its slot', replacement: { slot: 1 } },
    { name: 'belongs to a deleted workload', workload: { deletionRequestedAt: { seconds: 1n } } },
    { name: 'is on a draining node', node: { draining: true } },
  ])('leaves out a replica that $name', async ({ name: _name, ...world }) => {
    expect((await takeBack(world)).size).toBe(0);
  });
});
