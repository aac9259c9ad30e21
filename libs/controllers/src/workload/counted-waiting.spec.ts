import fc from 'fast-check';
import { ReplicaStatus_Phase as Phase } from '@cloudless/api';
import { TestBed } from '../testing/test-bed.js';
import { WorkloadReconciler } from './workload-reconciler.js';

/** One change of the scenario. `at` chooses the replica. */
const arbChange = fc.oneof(
  fc.record({ kind: fc.constant('scale' as const), replicas: fc.nat(140) }),
  fc.record({ kind: fc.constant('update' as const), replicas: fc.nat(12) }),
  fc.record({
    kind: fc.constantFrom('place', 'ready', 'restart', 'fail', 'lose', 'refuse', 'remove'),
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
});
