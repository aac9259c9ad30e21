import { durationFromMs, timestampFromMs } from '@bufbuild/protobuf/wkt';
import { ReplicaStatus_Phase as Phase } from '@cloudless/api';
import { LEASE_MS, TestBed } from '../testing/test-bed.js';
import { NodeReconciler } from './node-reconciler.js';

let bed: TestBed;

async function openWith(nodes: readonly string[]): Promise<void> {
  bed = await TestBed.open({ nodes });
  bed.use(new NodeReconciler(bed));
}

afterEach(() => bed.close());

describe('NodeReconciler after the loss of a node', () => {
  beforeEach(() => openWith(['node-1', 'node-2', 'node-3']));

  it('marks a node and its replicas as lost when the lease has ended', async () => {
    await bed.addReplicas(2);
    bed.silence('node-1');
    await bed.advance(LEASE_MS - 100);
    expect(bed.node('node-1').lost).toBe(false);
    await bed.advance(1_100);
    expect(bed.node('node-1').lost).toBe(true);
    expect(bed.node('node-2').lost).toBe(false);
    expect(bed.replicas()).toMatchObject(
      [1, 2].map(() => ({
        lost: true,
        desiredRunning: false,
        ready: false,
        phase: Phase.FAILED,
        reason: 'node node-1 is lost',
        stopReason: 'node node-1 was lost and the replica was replaced',
      })),
    );
    expect(bed.replicas()[0]?.lostAt).toBeDefined();
    expect(bed.replicas()[0]?.orderRevision).toBeGreaterThan(0n);
  });

  it('clears the start of the readiness of a lost replica', async () => {
    await bed.addReplicas(1, () => ({ ready: true, readySince: timestampFromMs(1_000) }));
    expect(bed.replicas()[0]?.readySince).toBeDefined();
    bed.silence('node-1');
    await bed.advance(5_000);
    expect(bed.replicas()[0]).toMatchObject({ lost: true });
    expect(bed.replicas()[0]?.readySince).toBeUndefined();
  });

  it('gives all replicas of one commit the same object as the time of the loss', async () => {
    await bed.addReplicas(2);
    bed.silence('node-1');
    await bed.advance(5_000);
    const [first, second] = bed.replicas();
    expect(first?.lostAt).toBeDefined();
    expect(second?.lostAt).toBe(first?.lostAt);
  });

  it('adds one event for the node and one for its replicas, with the node event as cause', async () => {
    await bed.addReplicas(1);
    bed.silence('node-1');
    await bed.advance(5_000);
    const [lost] = bed.events('NodeLost');
    expect(lost?.message).toBe('node node-1 is lost: its lease ended: no message from its agent');
    expect(bed.events('ReplicasLost')).toMatchObject([
      {
        message: '1 replica lost with node node-1',
        replicaIds: ['web-1'],
        causeId: lost?.id,
        decision: {
          why: 'the node is lost, lost_after of its replicas has passed, and the replacement brake is released',
        },
      },
    ]);
  });

  it('changes the readiness guard of the workload of a lost replica', async () => {
    await bed.addReplicas(1);
    const before = bed.state.view().readinessGuard('web');
    bed.silence('node-1');
    await bed.advance(5_000);
    expect(bed.state.view().readinessGuard('web')).not.toEqual(before);
  });

  it('marks no replica as lost when the node returns between plan and commit', async () => {
    await bed.addReplicas(1, () => ({ lostAfter: durationFromMs(10_000) }));
    bed.silence('node-1');
    await bed.advance(LEASE_MS + 9_500);
    expect(bed.node('node-1').lost).toBe(true);
    bed.beforeNextCommit(() => bed.returnNode('node-1'));
    await bed.advance(2_000);
    expect(bed.node('node-1').lost).toBe(false);
    expect(bed.replicas()).toMatchObject([{ lost: false, desiredRunning: true, ready: true }]);
    expect(bed.events('ReplicasLost')).toEqual([]);
  });

  it('marks the node as lost in another pass when its record changes between plan and commit', async () => {
    bed.silence('node-1');
    bed.beforeNextCommit(() => bed.changeNode('node-1', { cordoned: true }));
    await bed.advance(5_000);
    expect(bed.node('node-1')).toMatchObject({ cordoned: true, lost: true });
  });

  it('marks each replica as lost when its own lost_after has passed', async () => {
    await bed.addReplicas(2, (index) => ({ lostAfter: durationFromMs(index * 20_000) }));
    bed.silence('node-1');
    await bed.advance(10_000);
    expect(bed.replicas().map(({ lost }) => lost)).toEqual([true, false]);
    await bed.advance(12_000);
    expect(bed.replicas().map(({ lost }) => lost)).toEqual([true, false]);
    await bed.advance(2_000);
    expect(bed.replicas().map(({ lost }) => lost)).toEqual([true, true]);
  });

  it('marks a replica as lost when its lost_after becomes shorter', async () => {
    await bed.addReplicas(1, () => ({ lostAfter: durationFromMs(600_000) }));
    bed.silence('node-1');
    await bed.advance(10_000);
    expect(bed.replicas()[0]?.lost).toBe(false);
    await bed.changeReplica('web-1', { lostAfter: undefined });
    await bed.advance();
    expect(bed.replicas()[0]?.lost).toBe(true);
  });

  it('marks 100 replicas as lost in commits of at most 45', async () => {
    await bed.addReplicas(100);
    const sizes = bed.recordCommitSizes();
    bed.silence('node-1');
    await bed.advance(5_000);
    expect(bed.replicas().every(({ lost }) => lost)).toBe(true);
    expect(bed.events('ReplicasLost').map(({ replicaIds }) => replicaIds.length)).toEqual([
      45, 45, 10,
    ]);
    expect(Math.max(...sizes)).toBeLessThan(100);
  });

  it('does not mark an ended replica as lost', async () => {
    await bed.addReplicas(1, () => ({ phase: Phase.SUCCEEDED, ready: false }));
    bed.silence('node-1');
    await bed.advance(5_000);
    expect(bed.replicas()[0]).toMatchObject({ lost: false, phase: Phase.SUCCEEDED });
  });

  it('marks no node as lost while the store is rolled back, until an operator accepts the state', async () => {
    bed.state.reportNewerState({ nodeId: 'node-2', epoch: 9n, orderRevision: 0n });
    bed.silence('node-1');
    await bed.advance(5_000);
    expect(bed.node('node-1').lost).toBe(false);
    await bed.state.acceptRestoredState();
    await bed.advance();
    expect(bed.node('node-1').lost).toBe(true);
  });
});

describe('NodeReconciler after the return of a node', () => {
  beforeEach(() => openWith(['node-1', 'node-2', 'node-3']));

  it('clears the loss after 1 s when the session has not, and keeps lost replicas', async () => {
    await bed.addReplicas(1);
    bed.silence('node-1');
    await bed.advance(5_000);
    await bed.changeNode('node-1', { lossConfirmed: true });
    bed.connect('node-1');
    await bed.advance(990);
    // The session of the agent writes the return, with what happens to the replicas.
    expect(bed.node('node-1').lost).toBe(true);
    await bed.advance(10);
    expect(bed.node('node-1')).toMatchObject({ lost: false, lossConfirmed: false });
    expect(bed.events('NodeReturned')).toMatchObject([
      { message: 'node node-1 has returned', causeId: bed.events('NodeLost')[0]?.id },
    ]);
    expect(bed.replicas()).toMatchObject([{ lost: true }]);
  });

  it('waits 1 s again after each commit in which the session takes replicas back', async () => {
    bed.silence('node-1');
    await bed.advance(5_000);
    bed.connect('node-1');
    for (let commits = 0; commits < 3; commits += 1) {
      await bed.advance(900);
      await bed.changeNode('node-1', {});
    }
    await bed.advance(990);
    expect(bed.node('node-1').lost).toBe(true);
    await bed.advance(10);
    expect(bed.node('node-1').lost).toBe(false);
  });
});

describe('NodeReconciler after the loss of all nodes', () => {
  const nodes = ['node-1', 'node-2', 'node-3', 'node-4', 'node-5'];
  beforeEach(() => openWith(nodes));

  it('marks no replica as lost while the replacement brake holds, and adds one event', async () => {
    await bed.addReplicas(5, (index) => ({ nodeId: nodes[index] ?? '' }));
    bed.silence(...nodes);
    await bed.advance(60_000);
    expect(nodes.map((id) => bed.node(id).lost)).toEqual(nodes.map(() => true));
    expect(bed.replicas().filter(({ lost }) => lost)).toEqual([]);
    expect(bed.events('ReplacementHeld')).toHaveLength(1);
  });

  it('marks replicas as lost when the replacement brake releases after five minutes', async () => {
    await bed.addReplicas(1);
    bed.silence(...nodes);
    await bed.advance(320_000);
    expect(bed.replicas()[0]?.lost).toBe(true);
  });

  it('marks the replicas of a node as lost while the brake holds when an operator confirms the loss', async () => {
    await bed.addReplicas(2, (index) => ({
      nodeId: nodes[index] ?? '',
      lostAfter: durationFromMs(600_000),
    }));
    bed.silence(...nodes);
    await bed.advance(20_000);
    await bed.changeNode('node-1', { lossConfirmed: true });
    await bed.advance();
    expect(bed.replicas().map(({ lost }) => lost)).toEqual([true, false]);
    expect(bed.events('ReplicasLost')[0]?.decision?.why).toBe(
      'an operator has confirmed that the machine is dead',
    );
  });
});
