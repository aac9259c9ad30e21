import {
  ReplicaStatus_Phase as ReplicaPhase,
  RestartPolicy_Policy as Restart,
  RolloutStatus_Phase as RolloutPhase,
  Rollout_Strategy as Strategy,
  WorkloadStatus_Phase as Phase,
  type ReplicaStatus,
} from '@cloudless/api';
import type { TestCluster } from './index.js';
import { clusterOf, createWeb, readWeb } from './support.js';

const policies = [
  { name: 'NEVER', restart: { policy: Restart.NEVER } },
  { name: 'ON_FAILURE', restart: { policy: Restart.ON_FAILURE } },
];

/** Three nodes, and three replicas that run until the test ends them. */
async function running(restart: object, spec: object = {}): Promise<TestCluster> {
  const cluster = await clusterOf(3);
  await createWeb(cluster, { restart, ...spec });
  await cluster.advance(3_000);
  return cluster;
}

const statusOf = async (cluster: TestCluster) => (await readWeb(cluster)).status;
const runs = async (cluster: TestCluster): Promise<ReplicaStatus[]> =>
  ((await statusOf(cluster))?.replicas ?? []).filter(
    ({ phase, leaving }) => phase === ReplicaPhase.RUNNING && !leaving,
  );
/** How often anything was started anywhere. */
const starts = (cluster: TestCluster): number =>
  [...cluster.agents.values()].reduce((sum, { started }) => sum + started.length, 0);

/** Ends one replica, or all that run. */
async function succeed(cluster: TestCluster, replicas?: readonly ReplicaStatus[]): Promise<void> {
  for (const { id, nodeId } of replicas ?? (await runs(cluster))) {
    cluster.agents
      .get(nodeId)!
      .change(id, { phase: ReplicaPhase.SUCCEEDED, ready: false, lastExitCode: 0 });
  }
  await cluster.advance(500);
}

describe.each(policies)('a job with restart policy $name', ({ restart }) => {
  it('that has succeeded is not run again by a drain, nor by the loss of its node', async () => {
    const cluster = await running(restart);
    await succeed(cluster);
    expect(await statusOf(cluster)).toMatchObject({
      phase: Phase.SUCCEEDED,
      succeededReplicas: 3,
      totalReplicas: 0,
    });
    await cluster.until(() => cluster.client.drainNode({ nodeId: 'node-1' }));
    cluster.agents.get('node-2')!.disconnect();
    await cluster.advance(10_000);
    await cluster.reconnect('node-2');
    await cluster.advance(3_000);
    expect(starts(cluster)).toBe(3);
    expect(await statusOf(cluster)).toMatchObject({
      phase: Phase.SUCCEEDED,
      succeededReplicas: 3,
      totalReplicas: 0,
    });
  });

  it('runs again elsewhere when its node is drained before the end, and what had succeeded does not', async () => {
    const cluster = await running(restart);
    const [first, second] = await runs(cluster);
    await succeed(cluster, [first!]);
    await cluster.until(() => cluster.client.drainNode({ nodeId: second!.nodeId }));
    await cluster.advance(15_000);
    const left = await runs(cluster);
    expect(left).toHaveLength(2);
    expect(left.map(({ nodeId }) => nodeId)).not.toContain(second!.nodeId);
    expect(starts(cluster)).toBe(4);
    const drained = await cluster.until(() => cluster.client.getNode({ nodeId: second!.nodeId }));
    expect(drained.status?.replicaCount).toBe(0);
    await succeed(cluster);
    expect(await statusOf(cluster)).toMatchObject({
      phase: Phase.SUCCEEDED,
      succeededReplicas: 3,
      totalReplicas: 0,
    });
  });

  it('runs again elsewhere when its node is lost before the end, and stops where it was when that comes back', async () => {
    const cluster = await running(restart);
    const [first, second] = await runs(cluster);
    await succeed(cluster, [first!]);
    const agent = cluster.agents.get(second!.nodeId)!;
    agent.disconnect();
    await cluster.advance(8_000);
    expect((await runs(cluster)).map(({ nodeId }) => nodeId)).not.toContain(second!.nodeId);
    expect(starts(cluster)).toBe(4);
    await cluster.reconnect(second!.nodeId);
    await cluster.advance(3_000);
    expect(agent.replicas.has(second!.id)).toBe(false);
    await succeed(cluster);
    expect(await statusOf(cluster)).toMatchObject({
      phase: Phase.SUCCEEDED,
      succeededReplicas: 3,
      totalReplicas: 0,
    });
    expect(starts(cluster)).toBe(4);
  });

  it('one that succeeded while its lost node was cut off counts as lost, as its replacement runs', async () => {
    const cluster = await running(restart);
    const [first] = await runs(cluster);
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
  ])('runs the new version for all when some have succeeded: $name', async ({ rollout }) => {
    const cluster = await running(restart, { rollout });
    const [first] = await runs(cluster);
    await succeed(cluster, [first!]);
    await cluster.until(() =>
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
    expect(starts(cluster)).toBe(6);
    await succeed(cluster);
    expect(await statusOf(cluster)).toMatchObject({
      phase: Phase.SUCCEEDED,
      succeededReplicas: 3,
      totalReplicas: 0,
      rollout: { phase: RolloutPhase.COMPLETED },
    });
  });

  it('that has succeeded is not run again with its version while a rollout keeps that: canary, pause', async () => {
    const cluster = await running(restart, { rollout: { steps: [{ replicas: 1, promotion: 1 }] } });
    const [first, second] = await runs(cluster);
    await succeed(cluster, [first!, second!]);
    await cluster.until(() =>
      cluster.client.updateWorkload({ name: 'web', spec: { env: { COLOUR: 'green' } } }),
    );
    await cluster.advance(10_000, 50);
    expect((await runs(cluster)).map(({ version }) => version)).toContain(2);
    expect(starts(cluster)).toBe(4);
    await cluster.until(() => cluster.client.pauseRollout({ name: 'web' }));
    await cluster.advance(5_000, 50);
    expect(starts(cluster)).toBe(4);
    await cluster.until(() => cluster.client.resumeRollout({ name: 'web' }));
    await cluster.until(() => cluster.client.promoteRollout({ name: 'web' }));
    await cluster.advance(30_000, 50);
    expect(await statusOf(cluster)).toMatchObject({
      updatedReplicas: 3,
      totalReplicas: 3,
      succeededReplicas: 0,
    });
    expect(starts(cluster)).toBe(6);
  });

  it('that has succeeded is not run again when new ones fail while an update is paused', async () => {
    const cluster = await running(restart);
    const [first, second] = await runs(cluster);
    await succeed(cluster, [first!, second!]);
    for (const agent of cluster.agents.values()) agent.onStart = 'unready';
    await cluster.until(() =>
      cluster.client.updateWorkload({ name: 'web', spec: { env: { COLOUR: 'green' } } }),
    );
    await cluster.until(() => cluster.client.pauseRollout({ name: 'web' }));
    await cluster.advance(500);
    const before = starts(cluster);
    for (const { id, nodeId, version } of await runs(cluster)) {
      if (version === 2)
        cluster.agents
          .get(nodeId)!
          .change(id, { phase: ReplicaPhase.FAILED, reason: 'exit code 1' });
    }
    await cluster.advance(10_000, 50);
    expect(starts(cluster)).toBe(before);
  });

  it('runs the new version once for all when everything had succeeded, and so does an undo', async () => {
    const cluster = await running(restart);
    await succeed(cluster);
    for (const agent of cluster.agents.values()) agent.onStart = 'succeeds';
    await cluster.until(() =>
      cluster.client.updateWorkload({ name: 'web', spec: { env: { COLOUR: 'green' } } }),
    );
    await cluster.advance(10_000);
    expect(await statusOf(cluster)).toMatchObject({
      phase: Phase.SUCCEEDED,
      version: 2,
      succeededReplicas: 3,
    });
    expect(starts(cluster)).toBe(6);
    await cluster.until(() => cluster.client.undoRollout({ name: 'web' }));
    await cluster.advance(10_000);
    expect(await statusOf(cluster)).toMatchObject({
      phase: Phase.SUCCEEDED,
      version: 3,
      succeededReplicas: 3,
      totalReplicas: 0,
    });
    expect(starts(cluster)).toBe(9);
  });

  it.each([
    { name: 'a rolling update', rollout: {} },
    { name: 'RECREATE', rollout: { strategy: Strategy.RECREATE } },
    { name: 'BLUE_GREEN', rollout: { strategy: Strategy.BLUE_GREEN } },
  ])(
    'an update whose replicas succeed while old ones still run comes to its end: $name',
    async ({ rollout }) => {
      const cluster = await running(restart, { rollout });
      for (const agent of cluster.agents.values()) agent.onStart = 'succeeds';
      await cluster.until(() =>
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
      expect(starts(cluster)).toBe(6);
    },
  );

  it('is scaled up after its end: only the additional ones run; and down: nothing does', async () => {
    const cluster = await running(restart);
    await succeed(cluster);
    await cluster.until(() => cluster.client.scaleWorkload({ name: 'web', replicas: 5 }));
    await cluster.advance(3_000);
    expect(await statusOf(cluster)).toMatchObject({
      succeededReplicas: 3,
      readyReplicas: 2,
      totalReplicas: 2,
      phase: Phase.RUNNING,
    });
    await succeed(cluster);
    expect(await statusOf(cluster)).toMatchObject({ phase: Phase.SUCCEEDED, succeededReplicas: 5 });
    await cluster.until(() => cluster.client.scaleWorkload({ name: 'web', replicas: 2 }));
    await cluster.advance(3_000);
    expect(starts(cluster)).toBe(5);
    expect((await statusOf(cluster))?.phase).toBe(Phase.SUCCEEDED);
  });

  it('survives a new coordinator with what has succeeded', async () => {
    const cluster = await running(restart);
    const [first] = await runs(cluster);
    await succeed(cluster, [first!]);
    await cluster.restartCoordinator();
    for (const nodeId of cluster.agents.keys()) await cluster.reconnect(nodeId);
    await cluster.advance(5_000);
    expect(await statusOf(cluster)).toMatchObject({
      succeededReplicas: 1,
      readyReplicas: 2,
      totalReplicas: 2,
    });
    expect(starts(cluster)).toBe(3);
  });
});

describe('a job that fails', () => {
  it('with NEVER is not run again, neither by a drain nor by the loss of its node', async () => {
    const cluster = await running({ policy: Restart.NEVER });
    const [first, second] = await runs(cluster);
    for (const { id, nodeId } of [first!, second!]) {
      cluster.agents.get(nodeId)!.change(id, {
        phase: ReplicaPhase.FAILED,
        ready: false,
        reason: 'exit code 1',
        lastExitCode: 1,
      });
    }
    await cluster.advance(1_000);
    await cluster.until(() => cluster.client.drainNode({ nodeId: first!.nodeId }));
    cluster.agents.get(second!.nodeId)!.disconnect();
    await cluster.advance(8_000);
    expect(starts(cluster)).toBe(3);
    const status = await statusOf(cluster);
    expect(status).toMatchObject({ phase: Phase.FAILED, totalReplicas: 1 });
    expect(status?.reason).toContain('exit code 1');
  });

  it('with ON_FAILURE is replaced until it succeeds', async () => {
    const cluster = await running({ policy: Restart.ON_FAILURE });
    const [first] = await runs(cluster);
    cluster.agents
      .get(first!.nodeId)!
      .change(first!.id, { phase: ReplicaPhase.FAILED, ready: false, reason: 'exit code 1' });
    await cluster.advance(3_000);
    expect(starts(cluster)).toBe(4);
    await succeed(cluster);
    expect(await statusOf(cluster)).toMatchObject({ phase: Phase.SUCCEEDED, succeededReplicas: 3 });
  });
});
