import { create } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import fc from 'fast-check';
import { ReplicaStatus_Phase as Phase } from '@cloudless/api';
import { EvictionRecordSchema, type ReplicaRecord } from '@cloudless/api/store';
import { copyReplica } from '@cloudless/cluster-state';
import { TestBed, type ReplicaChanges } from '../testing/test-bed.js';
import { WorkloadReconciler } from './workload-reconciler.js';

/** One change of the scenario. `at` chooses the replica. */
const arbChange = fc.oneof(
  fc.record({ kind: fc.constant('scale' as const), replicas: fc.nat(140) }),
  fc.record({ kind: fc.constant('update' as const), replicas: fc.nat(12) }),
  fc.record({
    kind: fc.constantFrom('place', 'ready', 'restart', 'fail', 'lose', 'refuse', 'remove', 'move'),
    at: fc.nat(140),
  }),
  fc.record({ kind: fc.constantFrom('confirm', 'drain', 'wait', 'delete') }),
);
type Change = typeof arbChange extends fc.Arbitrary<infer Value> ? Value : never;

async function applyChange(bed: TestBed, change: Change): Promise<void> {
  if ('replicas' in change) {
    const command = change.kind === 'update' ? [`run ${change.replicas}`] : ['run'];
    await bed.updateWorkload({ replicas: change.replicas, command });
  } else if ('at' in change) {
    const replicas = bed.replicas();
    const replica = replicas[change.at % Math.max(1, replicas.length)];
    if (replica === undefined) return;
    const isPlaced = replica.nodeId !== '' && replica.phase <= Phase.RUNNING && !replica.lost;
    const { id, desiredRunning, restarts } = replica;
    if (change.kind === 'place' && replica.nodeId === '' && desiredRunning)
      await bed.changeReplica(id, { nodeId: 'node-1', phase: Phase.ASSIGNED });
    else if (change.kind === 'refuse' && replica.nodeId === '')
      await bed.changeReplica(id, { reason: 'no node fits' });
    else if (change.kind === 'ready' && isPlaced)
      await bed.changeReplica(id, { phase: Phase.RUNNING, ready: true });
    else if (change.kind === 'restart' && isPlaced)
      await bed.changeReplica(id, { ready: false, restarts: restarts + 1 });
    else if (change.kind === 'fail' && isPlaced)
      await bed.changeReplica(id, { ready: false, phase: Phase.FAILED });
    else if (change.kind === 'lose' && isPlaced)
      await bed.changeReplica(id, { ready: false, lost: true, desiredRunning: false });
    else if (change.kind === 'move' && isPlaced)
      await bed.changeControl({
        eviction: create(EvictionRecordSchema, {
          ...{ replicaIds: [id], nodeIds: [replica.nodeId] },
          until: timestampFromMs(bed.clock.wallTime() + 90_000),
        }),
      });
    else if (change.kind === 'remove' && replica.phase === Phase.FAILED)
      await bed.changeReplica(id, { phase: Phase.STOPPED });
  } else if (change.kind === 'confirm') await bed.confirmStops();
  else if (change.kind === 'drain') await bed.changeNode('node-1', { draining: true });
  else if (change.kind === 'delete') await bed.deleteWorkload();
  else await bed.advance(60_000);
}

/** Runs a scenario, and returns what users and agents see in the end. */
async function runScenario(changes: readonly Change[], minCountedWaiting: number) {
  const bed = await TestBed.open({ nodes: ['node-1', 'node-2'] });
  bed.use(new WorkloadReconciler(bed.dependencies({ minCountedWaiting })));
  await bed.createWorkload({ replicas: 70, command: ['run'] });
  await bed.advance();
  for (const change of changes) {
    if (bed.state.view().workload('web') === undefined) break;
    await applyChange(bed, change);
    await bed.advance(1_000);
  }
  const { view } = { view: bed.state.view() };
  const result = {
    replicas: bed.replicas(),
    control: view.control('web')?.value,
    events: view.events().map(({ reason, message, replicaIds }) => ({
      ...{ reason, message, replicaIds },
    })),
  };
  await bed.close();
  return result;
}

describe('WorkloadReconciler with waiting replicas that are only counted', () => {
  it('leaves the same records and events as with every waiting replica', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(arbChange, { maxLength: 10 }), async (changes) => {
        const counted = await runScenario(changes, 1);
        expect(counted).toEqual(await runScenario(changes, Number.POSITIVE_INFINITY));
      }),
      { numRuns: 30 },
    );
  });

  it('gives no slot twice when replicas are placed between two commits of a decision', async () => {
    const bed = await TestBed.open({ nodes: ['node-1', 'node-2'] });
    bed.use(new WorkloadReconciler(bed.dependencies({ minCountedWaiting: 1 })));
    await bed.createWorkload({ replicas: 400, command: ['run'] });
    await bed.advance();
    const update = async (replicas: readonly ReplicaRecord[], fields: ReplicaChanges) => {
      const transaction = bed.state.transaction();
      for (const { id } of replicas) {
        const stored = bed.state.view().replica(id);
        if (stored !== undefined)
          transaction.updateReplica(stored, copyReplica(stored.value, fields));
      }
      await bed.state.commit(transaction);
    };
    const [low, high] = [bed.replicas().slice(0, 200), bed.replicas().slice(200)];
    const running = low.filter(({ slot }) => slot % 2 === 0).slice(0, 90);
    await update(running, { nodeId: 'node-1', phase: Phase.RUNNING, ready: true });
    await bed.advance(60_000);
    let isPlaced = false;
    bed.state.subscribe((changes) => {
      if (isPlaced || !changes.some(({ kind, before }) => kind === 'replica' && !before)) return;
      isPlaced = true;
      const waiting = [...low.filter(({ slot }) => slot % 2 === 1).reverse(), ...high];
      void update(waiting.slice(0, 80), { nodeId: 'node-2', phase: Phase.ASSIGNED });
    });
    await update(running, { ready: false, lost: true, desiredRunning: false });
    await bed.advance(60_000);
    expect(isPlaced).toBe(true);
    const live = bed.replicas().filter(({ lost, desiredRunning }) => desiredRunning && !lost);
    expect(live).toHaveLength(400);
    expect(new Set(live.map(({ slot }) => slot)).size).toBe(400);
    await bed.close();
  });
});
