import {
  Disconnect_Mode as DisconnectMode,
  Rollout_Strategy as Strategy,
  RestartPolicy_Policy as Restart,
  ReplicaStatus_Phase as Phase,
  RolloutStatus_Phase as RolloutPhase,
  WorkloadSpec_Mode as Mode,
} from '@cloudless/api';
import { TestBed } from '../testing/test-bed.js';
import { WorkloadReconciler } from './workload-reconciler.js';

let bed: TestBed;
/** Milliseconds after which a ready replica is available: more than min_ready_duration. */
const AVAILABLE_MS = 15_000;

beforeEach(async () => {
  bed = await TestBed.open({ nodes: ['node-1', 'node-2'] });
  bed.use(new WorkloadReconciler(bed));
});
afterEach(() => bed.close());

/** Creates a workload whose replicas run ready on node-1, as the first version. */
async function runWorkload(changes: Parameters<TestBed['createWorkload']>[0]): Promise<void> {
  await bed.createWorkload(changes);
  await bed.advance();
  await bed.runAll();
  await bed.advance(AVAILABLE_MS);
}

/** Creates a workload of mode GLOBAL, whose replicas run ready on their nodes. */
async function runGlobal(): Promise<void> {
  await bed.createWorkload({ mode: Mode.GLOBAL });
  await bed.advance();
  for (const { id, onlyNodeId } of bed.replicas())
    await bed.changeReplica(id, {
      nodeId: onlyNodeId,
      phase: Phase.RUNNING,
      ready: true,
      containerId: id,
    });
}

const running = () => bed.replicas().filter(({ desiredRunning }) => desiredRunning);
const idsOf = (replicas: readonly { readonly id: string }[]) => replicas.map(({ id }) => id);

describe('WorkloadReconciler at creation and scaling', () => {
  it('creates the wanted replicas, one for each slot, and adds one event', async () => {
    await bed.createWorkload({ replicas: 3 });
    await bed.advance();
    expect(bed.replicas()).toMatchObject(
      [0, 1, 2].map((slot) => ({
        slot,
        version: 1,
        phase: Phase.PENDING,
        desiredRunning: true,
        reason: 'waits for a node',
      })),
    );
    expect(bed.events('ReplicasCreated')).toMatchObject([
      {
        message: '3 replicas created: version 1: 3 wanted, 0 present',
        replicaIds: idsOf(bed.replicas()),
      },
    ]);
    expect(bed.control()).toMatchObject({ nextSequence: 4n, observedGeneration: 1n });
  });

  it('completes the first rollout when all replicas are ready, and then commits nothing', async () => {
    await runWorkload({ replicas: 2 });
    expect(bed.control()).toMatchObject({ rolloutPhase: RolloutPhase.COMPLETED, activeVersion: 1 });
    const { startedAt, endedAt } = bed.control()?.rollout ?? {};
    expect(Number(endedAt?.seconds)).toBeGreaterThan(Number(startedAt?.seconds));
    const { revision } = bed.state.view();
    await bed.advance(120_000);
    expect(bed.state.view().revision).toBe(revision);
  });

  it('creates 130 replicas in commits of at most 60, with one decision', async () => {
    const sizes = bed.recordCommitSizes();
    await bed.createWorkload({ replicas: 130 });
    await bed.advance();
    expect(bed.replicas()).toHaveLength(130);
    expect(bed.events('ReplicasCreated').map(({ message }) => message)).toEqual([
      '60 replicas created: version 1: 130 wanted, 0 present',
      '60 replicas created: version 1: 130 wanted, 60 present',
      '10 replicas created: version 1: 130 wanted, 120 present',
    ]);
    expect(Math.max(...sizes)).toBeGreaterThan(60);
    expect(Math.max(...sizes)).toBeLessThan(70);
    expect(new Set(bed.replicas().map(({ slot }) => slot)).size).toBe(130);
  });

  it('makes a new decision when the spec changes between two commits of creations', async () => {
    const commit = bed.state.commit.bind(bed.state);
    let commits = 0;
    bed.state.commit = async (transaction) => {
      if ((commits += 1) === 2) await bed.updateWorkload({ replicas: 70 });
      return commit(transaction);
    };
    await bed.createWorkload({ replicas: 130 });
    await bed.advance();
    expect(bed.replicas()).toHaveLength(70);
    expect(new Set(bed.replicas().map(({ slot }) => slot)).size).toBe(70);
  });

  it('stops the newest replica at a scale-down with a new order revision', async () => {
    await runWorkload({ replicas: 3 });
    const { revision } = bed.state.view();
    await bed.updateWorkload({ replicas: 2 });
    await bed.advance();
    expect(bed.replicas().map(({ desiredRunning }) => desiredRunning)).toEqual([true, true, false]);
    const stopped = bed.replicas()[2];
    expect(stopped).toMatchObject({ stopReason: 'scaled down or moved' });
    expect(stopped?.orderRevision).toBeGreaterThan(revision);
    expect(bed.events('ReplicasStopping')).toMatchObject([
      {
        message:
          '1 replica ordered to stop: only 2 are wanted; 2 available replicas remain, min_available is 1',
      },
    ]);
  });

  it('deletes the record of a stopped replica, and reuses its slot', async () => {
    await runWorkload({ replicas: 2 });
    await bed.updateWorkload({ replicas: 1 });
    await bed.advance();
    await bed.confirmStops();
    await bed.advance();
    expect(bed.replicas()).toHaveLength(1);
    await bed.updateWorkload({ replicas: 2 });
    await bed.advance();
    expect(bed.replicas().map(({ slot }) => slot)).toEqual([0, 1]);
  });

  it('deletes a waiting replica without a node at once when a scale-down makes it surplus', async () => {
    await bed.createWorkload({ replicas: 2 });
    await bed.advance();
    await bed.updateWorkload({ replicas: 1 });
    await bed.advance();
    expect(bed.replicas()).toHaveLength(1);
  });

  it('creates no replica while the store is rolled back, until an operator accepts the state', async () => {
    bed.state.reportNewerState({ nodeId: 'node-1', epoch: 9n, orderRevision: 0n });
    await bed.createWorkload({ replicas: 1 });
    await bed.advance(1_000);
    expect(bed.replicas()).toEqual([]);
    await bed.state.acceptRestoredState();
    await bed.advance();
    expect(bed.replicas()).toHaveLength(1);
  });
});

describe('WorkloadReconciler after failures', () => {
  const fail = async (id: string, reason = 'exit code 1') =>
    bed.changeReplica(id, { phase: Phase.FAILED, ready: false, reason });

  it('replaces a failed replica at once, then after 1 s, 2 s and 4 s', async () => {
    await runWorkload({ replicas: 1 });
    const waits: number[] = [];
    for (let failure = 0; failure < 4; failure += 1) {
      await bed.runAll();
      await fail(running().at(-1)!.id);
      let waitedMs = 0;
      for (await bed.advance(); running().length === 0; waitedMs += 500) await bed.advance(500);
      waits.push(waitedMs);
    }
    expect(waits).toEqual([0, 1_000, 2_000, 4_000]);
  });

  it('adds an event with the reason when a replica fails', async () => {
    await runWorkload({ replicas: 1 });
    await fail('web-1', 'out of memory');
    await bed.advance();
    expect(bed.events('ReplicaFailed')).toMatchObject([
      { message: `replica ${bed.replicas()[0]!.id} failed: out of memory`, nodeId: 'node-1' },
    ]);
    expect(bed.replicas()[0]).toMatchObject({ desiredRunning: false, stopReason: 'out of memory' });
  });

  it('keeps the newest failed replica of a slot and deletes older failed replicas', async () => {
    await runWorkload({ replicas: 1 });
    const first = running()[0]!.id;
    await fail(first);
    await bed.advance();
    await bed.runAll();
    const second = running()[0]!.id;
    await fail(second);
    await bed.advance(5_000);
    expect(idsOf(bed.replicas())).not.toContain(first);
    expect(idsOf(bed.replicas())).toContain(second);
  });

  it('resets the back-off when the spec changes', async () => {
    await runWorkload({ replicas: 1 });
    for (let failure = 0; failure < 4; failure += 1) {
      await bed.runAll();
      for (const { id } of running()) await fail(id);
      await bed.advance(10_000);
    }
    for (const { id } of running()) await fail(id);
    await bed.advance();
    expect(running()).toHaveLength(0);
    await bed.updateWorkload({ replicas: 1, command: ['serve', 'again'] });
    await bed.advance();
    expect(running()).toHaveLength(1);
  });

  it('counts a replica that stopped without an order as a failure of its slot', async () => {
    await runWorkload({ replicas: 1 });
    await bed.changeReplica('web-1', { phase: Phase.STOPPED, ready: false });
    await bed.advance();
    expect(bed.control().backoff[0]?.failures).toBe(1);
    expect(running()).toHaveLength(1);
  });

  it('does not replace a replica that failed under restart policy NEVER', async () => {
    await runWorkload({ replicas: 2, restart: { policy: Restart.NEVER } });
    await fail('web-1');
    await bed.advance(60_000);
    expect(idsOf(bed.replicas())).toEqual(['web-1', 'web-2']);
  });

  it('does not replace a succeeded replica', async () => {
    await runWorkload({ replicas: 2, restart: { policy: Restart.ON_FAILURE } });
    await bed.changeReplica('web-1', { phase: Phase.SUCCEEDED, ready: false });
    await bed.advance(60_000);
    expect(bed.replicas()).toHaveLength(2);
  });

  it('fails a rollout after maxFailedNew failures and stops no old replica', async () => {
    await runWorkload({ replicas: 2, rollout: { maxFailedNew: 1 } });
    await bed.updateWorkload({ replicas: 2, command: ['broken'], rollout: { maxFailedNew: 1 } });
    await bed.advance();
    const created = running().find(({ version }) => version === 2)!;
    await bed.changeReplica(created.id, { nodeId: 'node-2', phase: Phase.FAILED, reason: 'crash' });
    await bed.advance(5_000);
    expect(bed.control()).toMatchObject({
      rolloutPhase: RolloutPhase.FAILED,
      rollout: { failedNew: 1, failure: { replicaId: created.id, version: 2 } },
    });
    expect(running().filter(({ version, ready }) => version === 1 && ready)).not.toHaveLength(0);
  });

  it('writes the previous template as a new version when a rollout with onFailure ROLLBACK fails', async () => {
    const rollout = { maxFailedNew: 1, onFailure: 1 };
    await runWorkload({ replicas: 1, rollout });
    await bed.updateWorkload({ replicas: 1, command: ['broken'], rollout });
    await bed.advance();
    const created = running().find(({ version }) => version === 2)!;
    await bed.changeReplica(created.id, { nodeId: 'node-2', phase: Phase.FAILED, reason: 'crash' });
    await bed.advance(5_000);
    expect(bed.workload()).toMatchObject({ version: 3, spec: { command: ['serve'] } });
    expect(bed.state.view().version('web', 3)).toMatchObject({
      sameAs: 1,
      cause: 'rollback to version 1',
    });
    expect(bed.control()).toMatchObject({
      rolloutPhase: RolloutPhase.ROLLED_BACK,
      rollout: { failure: { replicaId: created.id, version: 2 } },
    });
  });

  it('removes the failure of a rollout when another version is rolled out', async () => {
    await runWorkload({ replicas: 2, rollout: { maxFailedNew: 1 } });
    await bed.updateWorkload({ replicas: 2, command: ['broken'], rollout: { maxFailedNew: 1 } });
    await bed.advance();
    const created = running().find(({ version }) => version === 2)!;
    await bed.changeReplica(created.id, { nodeId: 'node-2', phase: Phase.FAILED, reason: 'crash' });
    await bed.advance(5_000);
    await bed.updateWorkload({ replicas: 2, command: ['mended'], rollout: { maxFailedNew: 1 } });
    await bed.advance();
    expect(bed.control()).toMatchObject({ rolloutPhase: RolloutPhase.IN_PROGRESS });
    expect(bed.control().rollout?.failure).toBeUndefined();
  });
});

describe('WorkloadReconciler with concurrent changes', () => {
  it('plans again when a replica stops being ready between plan and commit of a stop', async () => {
    await runWorkload({ replicas: 3, rollout: { minAvailable: 2 } });
    bed.beforeNextCommit(() => bed.changeReplica('web-1', { ready: false }));
    await bed.updateWorkload({ replicas: 2, rollout: { minAvailable: 2 } });
    await bed.advance();
    expect(idsOf(running())).toEqual(['web-2', 'web-3']);
  });

  it('plans again when the control record changes between plan and commit', async () => {
    await runWorkload({ replicas: 1 });
    bed.beforeNextCommit(() => bed.changeControl({ nextSequence: 50n }));
    await bed.updateWorkload({ replicas: 3 });
    await bed.advance();
    expect(bed.replicas().map(({ sequence }) => sequence)).toEqual([1n, 50n, 51n]);
  });

  it('plans again when the spec changes between plan and commit', async () => {
    await runWorkload({ replicas: 1 });
    bed.beforeNextCommit(() => bed.updateWorkload({ replicas: 1 }));
    await bed.updateWorkload({ replicas: 5 });
    await bed.advance();
    expect(bed.replicas()).toHaveLength(1);
    expect(bed.control().nextSequence).toBe(2n);
  });
});

describe('WorkloadReconciler during a rollout', () => {
  it('replaces replicas one by one and keeps minAvailable', async () => {
    await runWorkload({ replicas: 3, rollout: { minAvailable: 3 } });
    await bed.updateWorkload({ replicas: 3, command: ['new'], rollout: { minAvailable: 3 } });
    for (let round = 0; round < 12; round += 1) {
      await bed.advance(AVAILABLE_MS);
      expect(
        bed.replicas().filter((r) => r.ready && r.desiredRunning).length,
      ).toBeGreaterThanOrEqual(3);
      await bed.runAll();
      await bed.confirmStops();
    }
    await bed.advance(1_000);
    expect(running().map(({ version }) => version)).toEqual([2, 2, 2]);
    expect(bed.control()).toMatchObject({ rolloutPhase: RolloutPhase.COMPLETED, activeVersion: 2 });
    expect(bed.state.view().version('web', 2)?.rolledOut).toBe(true);
    expect(bed.events('RolloutCompleted').at(-1)?.message).toBe(
      'version 2 is rolled out: no replica of another version is left',
    );
  });

  it('keeps observations of replicas until the pass after the rollout', async () => {
    const readyForMs = bed.readiness.readyForMs.bind(bed.readiness);
    let observed = 0;
    bed.readiness.readyForMs = (replica) => {
      observed += 1;
      return readyForMs(replica);
    };
    bed.state.subscribe((changes) => {
      if (changes.some(({ kind, after }) => kind === 'version' && after?.rolledOut)) observed = 0;
    });
    await runWorkload({ replicas: 3 });
    expect(bed.state.view().version('web', 1)?.rolledOut).toBe(true);
    expect(observed).toBe(0);
    await bed.changeControl({ nextSequence: 50n });
    await bed.advance();
    expect(observed).toBe(3);
  });

  it('stops an old replica only when the new replica was ready for minReadyDuration', async () => {
    const rollout = { minAvailable: 2, minReadyDuration: { seconds: 10n } };
    await runWorkload({ replicas: 2, rollout });
    await bed.advance(20_000);
    await bed.updateWorkload({ replicas: 2, command: ['new'], rollout });
    await bed.advance();
    await bed.runAll();
    await bed.advance(9_000);
    expect(running().filter(({ version }) => version === 1)).toHaveLength(2);
    await bed.advance(1_500);
    expect(running().filter(({ version }) => version === 1)).toHaveLength(1);
  });

  it('creates the whole new set of a blue/green rollout, switches, and stops the previous set', async () => {
    const rollout = { strategy: Strategy.BLUE_GREEN };
    await runWorkload({ replicas: 2, rollout });
    await bed.updateWorkload({ replicas: 2, command: ['new'], rollout });
    await bed.advance();
    expect(running().map(({ version }) => version)).toEqual([1, 1, 2, 2]);
    await bed.runAll('node-2');
    await bed.advance(AVAILABLE_MS);
    expect(bed.control().activeVersion).toBe(2);
    expect(running().map(({ version }) => version)).toEqual([2, 2]);
    expect(bed.events('TrafficSwitched')).toHaveLength(1);
  });

  it('does not switch when a replica of the new set stops being ready between plan and commit', async () => {
    const rollout = { strategy: Strategy.BLUE_GREEN };
    await runWorkload({ replicas: 1, rollout });
    await bed.updateWorkload({ replicas: 1, command: ['new'], rollout });
    await bed.advance();
    const created = running().find(({ version }) => version === 2)!;
    await bed.changeReplica(created.id, {
      nodeId: 'node-2',
      phase: Phase.RUNNING,
      ready: true,
      containerId: 'c',
    });
    bed.beforeNextCommit(() => bed.changeReplica(created.id, { ready: false }));
    await bed.advance(AVAILABLE_MS);
    expect(bed.control().activeVersion).toBe(1);
  });

  it('keeps the 10 newest versions and the active version', async () => {
    await runWorkload({ replicas: 1 });
    for (let change = 0; change < 14; change += 1) {
      await bed.updateWorkload({ replicas: 1, command: ['serve', `${change}`] });
      await bed.advance();
    }
    const versions = bed.state
      .view()
      .versions('web')
      .map(({ version }) => version);
    expect(versions).toContain(1);
    expect(versions.filter((version) => version > 1)).toHaveLength(10);
  });
});

describe('WorkloadReconciler in mode GLOBAL', () => {
  it('creates one replica for each node, also for a node that joins later', async () => {
    await bed.createWorkload({ mode: Mode.GLOBAL });
    await bed.advance();
    expect(
      bed
        .replicas()
        .map(({ onlyNodeId }) => onlyNodeId)
        .sort(),
    ).toEqual(['node-1', 'node-2']);
    await bed.addNode('node-3');
    await bed.advance();
    expect(bed.replicas()).toHaveLength(3);
  });

  it('gives a replacement the slot of the failed replica on its node', async () => {
    await runGlobal();
    const second = bed.replicas().find(({ onlyNodeId }) => onlyNodeId === 'node-2')!;
    await bed.changeReplica(second.id, { phase: Phase.FAILED, ready: false, reason: 'crash' });
    await bed.advance();
    const replacement = running().find(({ onlyNodeId }) => onlyNodeId === 'node-2');
    expect(replacement?.slot).toBe(second.slot);
  });

  it('keeps the slot of a failed replica for its node when another node joins', async () => {
    await runGlobal();
    const failed = bed.replicas().find(({ slot }) => slot === 0)!;
    expect(failed.onlyNodeId).toBe('node-1');
    await bed.changeReplica(failed.id, { phase: Phase.FAILED, ready: false, reason: 'crash' });
    // The failure is recorded first. The next decision creates the replica of node-0 first.
    bed.beforeNextCommit(() => bed.addNode('node-0'));
    await bed.advance();
    const slots = running().map(({ onlyNodeId, slot }) => [onlyNodeId, slot] as const);
    expect(Object.fromEntries(slots)).toEqual({ 'node-0': 2, 'node-1': 0, 'node-2': 1 });
  });

  it('stops the replica of a drained node', async () => {
    await runGlobal();
    await bed.advance(1_000);
    await bed.changeNode('node-1', { cordoned: true, draining: true, drain: { total: 1 } });
    await bed.advance(1_000);
    expect(running().map(({ nodeId }) => nodeId)).toEqual(['node-2']);
  });

  it('keeps a rollout in progress until a cordoned node has the new version', async () => {
    const runGlobal = async (): Promise<void> => {
      for (let round = 0; round < 5; round += 1) {
        for (const { id, onlyNodeId, ready } of running())
          if (!ready)
            await bed.changeReplica(id, {
              nodeId: onlyNodeId,
              phase: Phase.RUNNING,
              ready: true,
              reason: '',
              containerId: id,
            });
        await bed.advance(AVAILABLE_MS);
        await bed.confirmStops();
      }
    };
    await bed.createWorkload({ mode: Mode.GLOBAL });
    await bed.advance();
    await runGlobal();
    await bed.changeNode('node-2', { cordoned: true });
    await bed.updateWorkload({ mode: Mode.GLOBAL, command: ['new'] });
    await bed.advance();
    await runGlobal();
    expect(
      running()
        .map(({ nodeId, version }) => `${nodeId} ${version}`)
        .sort(),
    ).toEqual(['node-1 2', 'node-2 1']);
    expect(bed.control()).toMatchObject({
      rolloutPhase: RolloutPhase.IN_PROGRESS,
      rolloutReason: '1 replica stays at another version as its node takes nothing new: node-2',
    });
    const { revision } = bed.state.view();
    await bed.advance(3_600_000);
    expect(bed.state.view().revision).toBe(revision);
    await bed.changeNode('node-2', { cordoned: false });
    await bed.advance();
    await runGlobal();
    expect(running().map(({ version }) => version)).toEqual([2, 2]);
    expect(bed.control()).toMatchObject({
      rolloutPhase: RolloutPhase.COMPLETED,
      rolloutReason: '',
    });
  });
});

describe('WorkloadReconciler after an eviction or a loss', () => {
  it('creates the replacement of a replica on a draining node before it stops the replica', async () => {
    await runWorkload({ replicas: 1 });
    await bed.changeNode('node-1', { cordoned: true, draining: true, drain: { total: 1 } });
    await bed.advance();
    expect(running()).toHaveLength(2);
    await bed.runAll('node-2');
    await bed.advance(AVAILABLE_MS);
    expect(running().map(({ nodeId }) => nodeId)).toEqual(['node-2']);
    expect(bed.events('ReplicasStopping')[0]?.message).toContain('the node is being drained');
  });

  it('stops no replica at a scale-down while the replicas are on a disconnected node', async () => {
    await runWorkload({ replicas: 2, rollout: { minAvailable: 1 } });
    bed.disconnect('node-1');
    await bed.updateWorkload({ replicas: 1, rollout: { minAvailable: 1 } });
    await bed.advance(500);
    expect(running()).toHaveLength(2);
  });

  it('creates a replacement when the toleration period of a replica ends', async () => {
    const placement = {
      tolerations: [{ key: 'spot', operator: 1, tolerationPeriod: { seconds: 30n } }],
    };
    await runWorkload({ replicas: 1, placement });
    await bed.changeNode('node-1', {
      taints: [{ key: 'spot', effect: 2 }],
      taintsSince: { 'spot:2': { seconds: BigInt(bed.clock.wallTime()) / 1_000n } },
    });
    await bed.advance(25_000);
    expect(running()).toHaveLength(1);
    await bed.advance(10_000);
    expect(running()).toHaveLength(2);
  });

  it('replaces a lost replica and keeps its tombstone', async () => {
    await runWorkload({ replicas: 1 });
    await bed.changeReplica('web-1', {
      lost: true,
      desiredRunning: false,
      ready: false,
      phase: Phase.FAILED,
    });
    await bed.advance();
    expect(bed.replicas()).toMatchObject([{ lost: true }, { lost: false, desiredRunning: true }]);
    await bed.advance(60_000);
    expect(bed.replicas()).toHaveLength(2);
  });
});

describe('WorkloadReconciler under a disconnect policy', () => {
  const exclusive = { disconnect: { mode: DisconnectMode.EXCLUSIVE } };

  it('orders a new stop time when the policy becomes EXCLUSIVE, without a restart', async () => {
    await runWorkload({ replicas: 1 });
    const before = bed.replicas()[0]!;
    await bed.updateWorkload({ replicas: 1, ...exclusive });
    await bed.advance();
    const after = bed.replicas()[0]!;
    expect(after.id).toBe(before.id);
    expect(after.stopAfter).toBeDefined();
    expect(after).toMatchObject({ stopAfterUnconfirmed: true });
    expect(after.orderRevision).toBeGreaterThan(before.orderRevision);
  });

  it('removes lost_after only when the agent has confirmed the new order', async () => {
    await runWorkload({ replicas: 1, ...exclusive });
    const { lostAfter } = bed.replicas()[0]!;
    expect(lostAfter).toBeDefined();
    await bed.updateWorkload({ replicas: 1 });
    await bed.advance();
    expect(bed.replicas()[0]).toMatchObject({ stopAfterUnconfirmed: true, lostAfter });
    expect(bed.replicas()[0]?.stopAfter).toBeUndefined();
    await bed.changeReplica('web-1', { stopAfterUnconfirmed: false });
    await bed.advance();
    expect(bed.replicas()[0]?.lostAfter).toBeUndefined();
  });

  it('keeps the slot of a stopping EXCLUSIVE replica until it has ended', async () => {
    await runWorkload({ replicas: 2, ...exclusive });
    await bed.updateWorkload({ replicas: 1, ...exclusive });
    await bed.advance();
    await bed.updateWorkload({ replicas: 2, ...exclusive });
    await bed.advance();
    expect(running().map(({ slot }) => slot)).toEqual([0, 2]);
  });
});

describe('WorkloadReconciler for a deleted workload', () => {
  it('stops all replicas, then deletes every record of the workload', async () => {
    await runWorkload({ replicas: 2 });
    await bed.deleteWorkload();
    await bed.advance();
    expect(bed.replicas()).toMatchObject(
      [1, 2].map(() => ({ desiredRunning: false, stopReason: 'the workload is being deleted' })),
    );
    expect(bed.state.view().workload('web')).toBeDefined();
    await bed.confirmStops();
    await bed.advance();
    const view = bed.state.view();
    expect([view.workload('web'), view.control('web'), view.readinessGuard('web')]).toEqual(
      [1, 2, 3].map(() => undefined),
    );
    expect([view.workloadByName('default', 'web'), view.versions('web')]).toEqual([undefined, []]);
    expect(await bed.state.recordsAt('name', view.revision)).toEqual(new Map());
    expect(bed.replicas()).toEqual([]);
    expect(bed.events('WorkloadDeleted')).toMatchObject([
      { message: 'workload default/web is gone: every node has confirmed' },
    ]);
  });

  it('keeps the tombstone of a lost replica and deletes it when the node confirms the stop', async () => {
    await runWorkload({ replicas: 1 });
    await bed.changeReplica('web-1', {
      lost: true,
      desiredRunning: false,
      ready: false,
      phase: Phase.FAILED,
    });
    await bed.deleteWorkload();
    await bed.advance();
    await bed.confirmStops();
    await bed.advance();
    expect(bed.state.view().workload('web')).toBeUndefined();
    expect(bed.events('WorkloadDeleted')[0]?.message).toContain('1 replica may still run');
    expect(bed.replicas()).toMatchObject([{ lost: true }]);
    await bed.changeReplica('web-1', { phase: Phase.STOPPED });
    await bed.advance();
    expect(bed.replicas()).toEqual([]);
  });
});
