import { ReplicaStatus_Phase as Phase } from '@cloudless/api';
import { CloudlessError } from '@cloudless/base';
import { TestBed, type ReplicaChanges } from '../testing/test-bed.js';
import { WorkloadReconciler } from './workload-reconciler.js';

let bed: TestBed;
let reconciler: WorkloadReconciler;

/** Starts with a workload whose replicas run ready on node-1, except for the given changes. */
async function open(
  replicas: number,
  changes: (index: number) => ReplicaChanges = () => ({}),
  options: { readonly replicasPerTurn?: number } = {},
): Promise<void> {
  bed = await TestBed.open({ nodes: ['node-1'] });
  await bed.createWorkload({ replicas });
  await bed.changeControl({ activeVersion: 1, observedGeneration: 1n });
  await bed.addReplicas(replicas, changes);
  await bed.advance(60_000);
  reconciler = new WorkloadReconciler(bed.dependencies(options));
  bed.use(reconciler);
}
afterEach(() => bed.close());

const waiting: ReplicaChanges = {
  ...{ nodeId: '', phase: Phase.PENDING, ready: false, containerId: '' },
};
const leaving = () => bed.replicas().filter(({ desiredRunning }) => !desiredRunning);

describe('WorkloadReconciler that deletes a workload with many replicas', () => {
  it('stops them in commits of at most 60 replicas, without a decision between the commits', async () => {
    await open(200, (index) => (index % 2 === 0 ? waiting : {}));
    const sizes = bed.recordCommitSizes();
    await bed.deleteWorkload();
    await bed.advance();
    expect(leaving()).toHaveLength(100);
    expect(bed.replicas()).toHaveLength(100);
    expect(sizes.length).toBe(4);
    expect(Math.max(...sizes)).toBeLessThan(70);
    expect(bed.events('ReplicasStopping').map(({ message }) => message)).toEqual(
      [70, 40, 10, 0].map(
        (available, index) =>
          `${index < 3 ? 60 : 20} replicas ordered to stop: only 0 are wanted; ` +
          `${available} available replicas remain, min_available is 0`,
      ),
    );
    await bed.confirmStops();
    await bed.advance();
    expect(bed.state.view().workload('web')).toBeUndefined();
    expect(bed.replicas()).toEqual([]);
  });

  it('deletes a workload whose replicas all wait in one pass', async () => {
    await open(130, () => waiting);
    await bed.deleteWorkload();
    await reconciler.reconcile('web');
    expect(bed.replicas()).toEqual([]);
    expect(bed.state.view().workload('web')).toBeUndefined();
    expect(bed.events('WorkloadDeleted')).toHaveLength(1);
  });

  it('deletes every replica when a turn ends within the replicas of two conflicts', async () => {
    await open(200, () => waiting, { replicasPerTurn: 270 });
    const commit = bed.state.commit.bind(bed.state);
    let commits = 0;
    bed.state.commit = async (transaction) => {
      commits += 1;
      if (commits <= 2) throw new CloudlessError('conflict', 'a record has changed');
      return commit(transaction);
    };
    await bed.deleteWorkload();
    await bed.advance();
    expect(commits).toBeGreaterThan(2);
    expect(bed.replicas()).toEqual([]);
    expect(bed.state.view().workload('web')).toBeUndefined();
  });

  it('stops every replica when replicas change between two commits', async () => {
    await open(130);
    const commit = bed.state.commit.bind(bed.state);
    let commits = 0;
    bed.state.commit = async (transaction) => {
      commits += 1;
      if (commits === 2) {
        await bed.changeReplica('web-61', { ready: false, phase: Phase.FAILED });
        await bed.changeReplica('web-62', { restarts: 1 });
      }
      return commit(transaction);
    };
    await bed.deleteWorkload();
    await bed.advance();
    // The conflict costs one commit; the failed replica needs no stop.
    expect(commits).toBe(4);
    expect(bed.replicas().map(({ id }) => id)).not.toContain('web-61');
    expect(leaving()).toHaveLength(129);
    expect(bed.events('ReplicasStopping').at(-1)?.message).toContain('; 0 available replicas');
  });

  it('goes on after a conflict with another change of the control record', async () => {
    await open(70);
    bed.beforeNextCommit(() => bed.changeControl({ rolloutReason: 'changed meanwhile' }));
    await bed.deleteWorkload();
    await bed.advance();
    expect(leaving()).toHaveLength(70);
    expect(bed.control()).toMatchObject({ rolloutReason: 'changed meanwhile' });
  });

  it('starts no further commit when the coordinator ends', async () => {
    await open(200);
    const commit = bed.state.commit.bind(bed.state);
    let commits = 0;
    let closed: Promise<void> | undefined;
    bed.state.commit = (transaction) => {
      commits += 1;
      closed ??= reconciler.close();
      return commit(transaction);
    };
    await bed.deleteWorkload();
    await bed.advance();
    await closed;
    expect(commits).toBe(1);
    expect(leaving()).toHaveLength(60);
  });

  it('stops the rest after a commit that failed', async () => {
    await open(130);
    const commit = bed.state.commit.bind(bed.state);
    let commits = 0;
    bed.state.commit = async (transaction) => {
      commits += 1;
      if (commits === 2) throw new CloudlessError('unavailable', 'no store');
      return commit(transaction);
    };
    await bed.deleteWorkload();
    await bed.advance(10_000);
    expect(leaving()).toHaveLength(130);
  });

  it('keeps the cause and the reason of a drain for the replicas on its node', async () => {
    await open(3);
    await bed.changeNode('node-1', { draining: true });
    await bed.deleteWorkload();
    await bed.advance();
    expect(bed.events('ReplicasStopping').map(({ message }) => message)).toEqual([
      expect.stringContaining('the node is being drained; 0 available replicas remain'),
    ]);
  });
});
