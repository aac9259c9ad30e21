import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { DrainStatus_Phase as DrainPhase, ReplicaStatus_Phase as Phase } from '@cloudless/api';
import { TestBed } from '../testing/test-bed.js';
import { DrainReconciler } from './drain-reconciler.js';

let bed: TestBed;

beforeEach(async () => {
  bed = await TestBed.open({ nodes: ['node-1', 'node-2'] });
  bed.use(new DrainReconciler(bed));
  await bed.createWorkload({ replicas: 2 });
});
afterEach(() => bed.close());

interface DrainOptions {
  /** Milliseconds until the deadline. Default: no deadline. */
  readonly deadlineMs?: number;
  readonly force?: boolean;
}

/** Starts a drain of node-1. */
async function drainNode({ deadlineMs, force = false }: DrainOptions = {}): Promise<void> {
  const nowMs = bed.clock.wallTime();
  await bed.changeNode('node-1', {
    cordoned: true,
    draining: true,
    drain: {
      startedAt: timestampFromMs(nowMs),
      ...(deadlineMs === undefined ? {} : { deadline: timestampFromMs(nowMs + deadlineMs) }),
      force,
      total: 2,
      phase: DrainPhase.DRAINING,
    },
  });
  await bed.advance();
}

describe('DrainReconciler', () => {
  it('marks an empty node as drained and keeps it draining and cordoned', async () => {
    await drainNode();
    expect(bed.node('node-1')).toMatchObject({
      cordoned: true,
      draining: true,
      drain: { phase: DrainPhase.DRAINED },
    });
    expect(bed.events('NodeDrained')).toMatchObject([
      {
        nodeId: 'node-1',
        message:
          'node node-1 is drained: nothing is left of the 2 replicas it held; it stays cordoned until it is uncordoned',
      },
    ]);
  });

  it('marks the node as drained only when its last replica has stopped', async () => {
    await bed.addReplicas(2);
    await drainNode();
    await bed.changeReplica('web-1', { phase: Phase.STOPPED, ready: false });
    await bed.advance(3_600_000);
    expect(bed.node('node-1').drain?.phase).toBe(DrainPhase.DRAINING);
    await bed.changeReplica('web-2', { phase: Phase.STOPPED, ready: false });
    await bed.advance();
    expect(bed.node('node-1').drain?.phase).toBe(DrainPhase.DRAINED);
  });

  it('marks the node as drained when its last replica record is deleted', async () => {
    await bed.addReplicas(1);
    await drainNode();
    const read = bed.state.view().replica('web-1')!;
    await bed.state.commitObserved(bed.state.transaction().deleteReplica(read));
    await bed.advance();
    expect(bed.node('node-1').drain?.phase).toBe(DrainPhase.DRAINED);
  });

  it('marks the drain as failed at its deadline, names the remaining replicas, and ends the eviction', async () => {
    await bed.addReplicas(2);
    await drainNode({ deadlineMs: 60_000 });
    await bed.advance(59_000);
    expect(bed.node('node-1').drain?.phase).toBe(DrainPhase.DRAINING);
    await bed.advance(2_000);
    expect(bed.node('node-1')).toMatchObject({
      cordoned: true,
      draining: false,
      drain: { phase: DrainPhase.FAILED },
    });
    expect(bed.events('NodeDrainFailed')[0]?.message).toBe(
      'the drain of node node-1 has failed: its deadline has passed with 2 of 2 replicas left; nothing more is moved, and the node stays cordoned. Left: default/web: 2 replicas: about to be replaced',
    );
  });

  it('does not fail a forced drain at its deadline', async () => {
    await bed.addReplicas(1);
    await drainNode({ deadlineMs: 60_000, force: true });
    await bed.advance(120_000);
    expect(bed.node('node-1').drain?.phase).toBe(DrainPhase.DRAINING);
  });

  it('does not end a drain that a user cancels between plan and commit', async () => {
    await bed.addReplicas(1);
    await drainNode();
    bed.beforeNextCommit(() => bed.changeNode('node-1', { cordoned: false, draining: false }));
    await bed.changeReplica('web-1', { phase: Phase.STOPPED, ready: false });
    await bed.advance();
    expect(bed.node('node-1')).toMatchObject({
      draining: false,
      drain: { phase: DrainPhase.DRAINING },
    });
    expect(bed.events('NodeDrained')).toEqual([]);
  });

  it('ignores nodes that are not draining', async () => {
    const { revision } = bed.state.view();
    await bed.changeNode('node-2', { cordoned: true });
    await bed.advance(60_000);
    expect(bed.state.view().revision).toBe(revision + 1n);
  });

  it('commits nothing more for a drained node', async () => {
    await drainNode();
    const { revision } = bed.state.view();
    await bed.changeNode('node-1', { labels: { rack: 'a' } });
    await bed.advance();
    expect(bed.state.view().revision).toBe(revision + 1n);
  });

  it('ends no drain while the store is rolled back, and ends it when an operator accepts the state', async () => {
    bed.state.reportNewerState({ nodeId: 'node-2', epoch: 9n, orderRevision: 0n });
    await drainNode();
    expect(bed.node('node-1').drain?.phase).toBe(DrainPhase.DRAINING);
    await bed.state.acceptRestoredState();
    await bed.advance();
    expect(bed.node('node-1').drain?.phase).toBe(DrainPhase.DRAINED);
  });
});
