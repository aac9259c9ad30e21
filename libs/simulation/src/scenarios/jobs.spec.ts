import {
  ReplicaStatus_Phase as ReplicaPhase,
  RestartPolicy_Policy as Restart,
  RolloutStatus_Phase as RolloutPhase,
  Rollout_Strategy as Strategy,
  WorkloadStatus_Phase as Phase,
  type ReplicaStatus,
} from '@cloudless/api';
import type { TestCluster } from '../index.js';
import { startCluster, createWeb, readWeb } from '../test-cluster/web-workload.js';

const policies = [
  { name: 'NEVER', restart: { policy: Restart.NEVER } },
  { name: 'ON_FAILURE', restart: { policy: Restart.ON_FAILURE } },
];

/** Starts three nodes and three replicas that run until the test ends them. */
async function startJob(restart: object, spec: object = {}): Promise<TestCluster> {
  const cluster = await startCluster(3);
  await createWeb(cluster, { restart, ...spec });
  await cluster.advance(3_000);
  return cluster;
}

const statusOf = async (cluster: TestCluster) => (await readWeb(cluster)).status;
const readRunning = async (cluster: TestCluster): Promise<ReplicaStatus[]> =>
  ((await statusOf(cluster))?.replicas ?? []).filter(
    ({ phase, leaving }) => phase === ReplicaPhase.RUNNING && !leaving,
  );
/** Returns the number of starts on all agents. */
const countStarts = (cluster: TestCluster): number =>
  [...cluster.agents.values()].reduce((sum, { started }) => sum + started.length, 0);

/** Ends the given replicas, or all running ones, with success. */
async function completeReplicas(
  cluster: TestCluster,
  replicas?: readonly ReplicaStatus[],
): Promise<void> {
  for (const { id, nodeId } of replicas ?? (await readRunning(cluster))) {
    cluster.agents
      .get(nodeId)!
      .change(id, { phase: ReplicaPhase.SUCCEEDED, ready: false, lastExitCode: 0 });
  }
  await cluster.advance(500);
}

describe.each(policies)('job with restart policy $name', ({ restart }) => {
  it('does not run a succeeded replica again after a drain or the loss of its node', async () => {
    const cluster = await startJob(restart);
    await completeReplicas(cluster);
    expect(await statusOf(cluster)).toMatchObject({
      phase: Phase.SUCCEEDED,
      succeededReplicas: 3,
      totalReplicas: 0,
    });
    await cluster.complete(() => cluster.client.drainNode({ nodeId: 'node-1' }));
    cluster.agents.get('node-2')!.disconnect();
    await cluster.advance(10_000);
    await cluster.reconnect('node-2');
    await cluster.advance(3_000);
    expect(countStarts(cluster)).toBe(3);
    expect(await statusOf(cluster)).toMatchObject({
      phase: Phase.SUCCEEDED,
      succeededReplicas: 3,
      totalReplicas: 0,
    });
  });

  it('runs unfinished replicas elsewhere when their node is drained, and finished ones not again', async () => {
    const cluster = await startJob(restart);
    const [first, second] = await readRunning(cluster);
    await completeReplicas(cluster, [first!]);
    await cluster.complete(() => cluster.client.drainNode({ nodeId: second!.nodeId }));
    await cluster.advance(15_000);
    const running = await readRunning(cluster);
    expect(running).toHaveLength(2);
    expect(running.map(({ nodeId }) => nodeId)).not.toContain(second!.nodeId);
    expect(countStarts(cluster)).toBe(4);
    const drained = await cluster.complete(() =>
      cluster.client.getNode({ nodeId: second!.nodeId }),
    );
    expect(drained.status?.replicaCount).toBe(0);
    await completeReplicas(cluster);
    expect(await statusOf(cluster)).toMatchObject({
      phase: Phase.SUCCEEDED,
      succeededReplicas: 3,
      totalReplicas: 0,
    });
  });

  it('runs unfinished replicas elsewhere when their node is lost, and stops them there when the node returns', async () => {
    const cluster = await startJob(restart);
    const [first, second] = await readRunning(cluster);
    await completeReplicas(cluster, [first!]);
    const agent = cluster.agents.get(second!.nodeId)!;
    agent.disconnect();
    await cluster.advance(8_000);
    expect((await readRunning(cluster)).map(({ nodeId }) => nodeId)).not.toContain(second!.nodeId);
    expect(countStarts(cluster)).toBe(4);
    await cluster.reconnect(second!.nodeId);
    await cluster.advance(3_000);
    expect(agent.replicas.has(second!.id)).toBe(false);
    await completeReplicas(cluster);
    expect(await statusOf(cluster)).toMatchObject({
      phase: Phase.SUCCEEDED,
      succeededReplicas: 3,
      totalReplicas: 0,
    });
    expect(countStarts(cluster)).toBe(4);
  });

  it('counts a replica that succeeded on a lost node as lost, because its replacement runs', async () => {
    const cluster = await startJob(restart);
    const [first] = await readRunning(cluster);
    const agent = cluster.agents.get(first!.nodeId)!;
    agent.disconnect();
    await cluster.advance(8_000);
    agent.change(first!.id, { phase: ReplicaPhase.SUCCEEDED, ready: false });
    await cluster.reconnect(first!.nodeId);
    await cluster.advance(3_000);
    expect(await statusOf(cluster)).toMatchObject({
      succeededReplicas: 0,
      readyReplicas: 3,
      totalReplicas: 3,
    });
  });

  it.each([
    { name: 'a rolling update', rollout: {} },
    { name: 'RECREATE', rollout: { strategy: Strategy.RECREATE } },
    { name: 'BLUE_GREEN', rollout: { strategy: Strategy.BLUE_GREEN } },
  ])(
    'runs all replicas with the new version when some have succeeded before the update: $name',
    async ({ rollout }) => {
      const cluster = await startJob(restart, { rollout });
      const [first] = await readRunning(cluster);
      await completeReplicas(cluster, [first!]);
      await cluster.complete(() =>
        cluster.client.updateWorkload({ name: 'web', spec: { env: { COLOUR: 'green' } } }),
      );
      await cluster.advance(20_000, 50);
      expect(await statusOf(cluster)).toMatchObject({
        version: 2,
        updatedReplicas: 3,
        readyReplicas: 3,
        totalReplicas: 3,
        succeededReplicas: 0,
      });
      expect(countStarts(cluster)).toBe(6);
      await completeReplicas(cluster);
      expect(await statusOf(cluster)).toMatchObject({
        phase: Phase.SUCCEEDED,
        succeededReplicas: 3,
        totalReplicas: 0,
        rollout: { phase: RolloutPhase.COMPLETED },
      });
    },
  );

  it('does not run succeeded replicas of a version again while a canary step or a pause keeps that version', async () => {
    const cluster = await startJob(restart, {
      rollout: { steps: [{ replicas: 1, promotion: 1 }] },
    });
    const [first, second] = await readRunning(cluster);
    await completeReplicas(cluster, [first!, second!]);
    await cluster.complete(() =>
      cluster.client.updateWorkload({ name: 'web', spec: { env: { COLOUR: 'green' } } }),
    );
    await cluster.advance(10_000, 50);
    expect((await readRunning(cluster)).map(({ version }) => version)).toContain(2);
    expect(countStarts(cluster)).toBe(4);
    await cluster.complete(() => cluster.client.pauseRollout({ name: 'web' }));
    await cluster.advance(5_000, 50);
    expect(countStarts(cluster)).toBe(4);
    await cluster.complete(() => cluster.client.resumeRollout({ name: 'web' }));
    await cluster.complete(() => cluster.client.promoteRollout({ name: 'web' }));
    await cluster.advance(30_000, 50);
    expect(await statusOf(cluster)).toMatchObject({
      updatedReplicas: 3,
      totalReplicas: 3,
      succeededReplicas: 0,
    });
    expect(countStarts(cluster)).toBe(6);
  });

  it('does not run succeeded replicas again when new ones fail while an update is paused', async () => {
    const cluster = await startJob(restart);
    const [first, second] = await readRunning(cluster);
    await completeReplicas(cluster, [first!, second!]);
    for (const agent of cluster.agents.values()) agent.onStart = 'unready';
    await cluster.complete(() =>
      cluster.client.updateWorkload({ name: 'web', spec: { env: { COLOUR: 'green' } } }),
    );
    await cluster.complete(() => cluster.client.pauseRollout({ name: 'web' }));
    await cluster.advance(500);
    const before = countStarts(cluster);
    for (const { id, nodeId, version } of await readRunning(cluster)) {
      if (version === 2)
        cluster.agents
          .get(nodeId)!
          .change(id, { phase: ReplicaPhase.FAILED, reason: 'exit code 1' });
    }
    await cluster.advance(10_000, 50);
    expect(countStarts(cluster)).toBe(before);
  });

  it('runs every replica once more when an update or an undo follows the success of all replicas', async () => {
    const cluster = await startJob(restart);
    await completeReplicas(cluster);
    for (const agent of cluster.agents.values()) agent.onStart = 'succeeds';
    await cluster.complete(() =>
      cluster.client.updateWorkload({ name: 'web', spec: { env: { COLOUR: 'green' } } }),
    );
    await cluster.advance(10_000);
    expect(await statusOf(cluster)).toMatchObject({
      phase: Phase.SUCCEEDED,
      version: 2,
      succeededReplicas: 3,
    });
    expect(countStarts(cluster)).toBe(6);
    await cluster.complete(() => cluster.client.undoRollout({ name: 'web' }));
    await cluster.advance(10_000);
    expect(await statusOf(cluster)).toMatchObject({
      phase: Phase.SUCCEEDED,
      version: 3,
      succeededReplicas: 3,
      totalReplicas: 0,
    });
    expect(countStarts(cluster)).toBe(9);
  });

  it.each([
    { name: 'a rolling update', rollout: {} },
    { name: 'RECREATE', rollout: { strategy: Strategy.RECREATE } },
    { name: 'BLUE_GREEN', rollout: { strategy: Strategy.BLUE_GREEN } },
  ])(
    'completes an update whose replicas succeed at once while old replicas still run: $name',
    async ({ rollout }) => {
      const cluster = await startJob(restart, { rollout });
      for (const agent of cluster.agents.values()) agent.onStart = 'succeeds';
      await cluster.complete(() =>
        cluster.client.updateWorkload({ name: 'web', spec: { env: { COLOUR: 'green' } } }),
      );
      await cluster.advance(20_000, 50);
      expect(await statusOf(cluster)).toMatchObject({
        phase: Phase.SUCCEEDED,
        version: 2,
        succeededReplicas: 3,
        totalReplicas: 0,
        rollout: { phase: RolloutPhase.COMPLETED },
      });
      expect(countStarts(cluster)).toBe(6);
    },
  );

  it('runs only the additional replicas when it is scaled up after its end, and none when scaled down', async () => {
    const cluster = await startJob(restart);
    await completeReplicas(cluster);
    await cluster.complete(() => cluster.client.scaleWorkload({ name: 'web', replicas: 5 }));
    await cluster.advance(3_000);
    expect(await statusOf(cluster)).toMatchObject({
      succeededReplicas: 3,
      readyReplicas: 2,
      totalReplicas: 2,
      phase: Phase.RUNNING,
    });
    await completeReplicas(cluster);
    expect(await statusOf(cluster)).toMatchObject({ phase: Phase.SUCCEEDED, succeededReplicas: 5 });
    await cluster.complete(() => cluster.client.scaleWorkload({ name: 'web', replicas: 2 }));
    await cluster.advance(3_000);
    expect(countStarts(cluster)).toBe(5);
    expect((await statusOf(cluster))?.phase).toBe(Phase.SUCCEEDED);
  });

  it('keeps its results across a coordinator restart', async () => {
    const cluster = await startJob(restart);
    const [first] = await readRunning(cluster);
    await completeReplicas(cluster, [first!]);
    await cluster.restartCoordinator();
    for (const nodeId of cluster.agents.keys()) await cluster.reconnect(nodeId);
    await cluster.advance(5_000);
    expect(await statusOf(cluster)).toMatchObject({
      succeededReplicas: 1,
      readyReplicas: 2,
      totalReplicas: 2,
    });
    expect(countStarts(cluster)).toBe(3);
  });
});

describe('failed job', () => {
  it('with NEVER is not run again after a drain or the loss of its node', async () => {
    const cluster = await startJob({ policy: Restart.NEVER });
    const [first, second] = await readRunning(cluster);
    for (const { id, nodeId } of [first!, second!]) {
      cluster.agents.get(nodeId)!.change(id, {
        phase: ReplicaPhase.FAILED,
        ready: false,
        reason: 'exit code 1',
        lastExitCode: 1,
      });
    }
    await cluster.advance(1_000);
    await cluster.complete(() => cluster.client.drainNode({ nodeId: first!.nodeId }));
    cluster.agents.get(second!.nodeId)!.disconnect();
    await cluster.advance(8_000);
    expect(countStarts(cluster)).toBe(3);
    const status = await statusOf(cluster);
    expect(status).toMatchObject({ phase: Phase.FAILED, totalReplicas: 1 });
    expect(status?.reason).toContain('exit code 1');
  });

  it('with ON_FAILURE is replaced until it succeeds', async () => {
    const cluster = await startJob({ policy: Restart.ON_FAILURE });
    const [first] = await readRunning(cluster);
    cluster.agents
      .get(first!.nodeId)!
      .change(first!.id, { phase: ReplicaPhase.FAILED, ready: false, reason: 'exit code 1' });
    await cluster.advance(3_000);
    expect(countStarts(cluster)).toBe(4);
    await completeReplicas(cluster);
    expect(await statusOf(cluster)).toMatchObject({ phase: Phase.SUCCEEDED, succeededReplicas: 3 });
  });
});
