import { jest } from '@jest/globals';
import { durationFromMs } from '@bufbuild/protobuf/wkt';
import type { ReplicaStatus } from '@cloudless/api';
import { COMMIT_CHECKERS } from '../checks/commit-checkers.js';
import { RandomWorld } from '../test-cluster/random-world.js';
import { startCluster } from '../test-cluster/web-workload.js';
import type { TestCluster } from '../index.js';

/** Each random world runs a whole cluster, which takes long on a busy machine. */
jest.setTimeout(60_000);

/** Creates a workload whose replicas each take half of a node. */
async function createWorkload(
  cluster: TestCluster,
  name: string,
  spec: { priority: number; replicas?: number; mode?: 1; rollout?: object },
): Promise<void> {
  await cluster.complete(() =>
    cluster.client.createWorkload({
      name,
      spec: {
        command: ['serve'],
        resources: { requests: { cpuMillis: 2_000 } },
        ...spec,
        rollout: { minReadyDuration: durationFromMs(0), ...spec.rollout },
      },
    }),
  );
  await cluster.advance(3_000);
}

async function replicasOf(cluster: TestCluster, name: string): Promise<readonly ReplicaStatus[]> {
  const { status } = await cluster.complete(() => cluster.client.getWorkload({ name }));
  return status?.replicas ?? [];
}

const readyOf = async (cluster: TestCluster, name: string): Promise<number> =>
  (await replicasOf(cluster, name)).filter(({ ready }) => ready).length;

/** Allows every replica of a workload to be preempted. */
const PREEMPTIBLE = { maxUnavailable: 100 };

describe('preemption', () => {
  it('runs a workload of priority above 100 on a full cluster, and the others again after it', async () => {
    const cluster = await startCluster(3);
    await createWorkload(cluster, 'batch', { priority: 10, replicas: 6, rollout: PREEMPTIBLE });
    expect(await readyOf(cluster, 'batch')).toBe(6);
    await createWorkload(cluster, 'high', { priority: 200, replicas: 4 });
    expect(await readyOf(cluster, 'high')).toBe(4);
    expect(await readyOf(cluster, 'batch')).toBe(2);
    const waiting = (await replicasOf(cluster, 'batch')).filter(({ nodeId }) => nodeId === '');
    expect(waiting.map(({ reason }) => reason)).toEqual(
      Array.from({ length: 4 }, () => 'no node fits: needs 2 CPU, more than is free: 3 of 3 nodes'),
    );
    await cluster.complete(() => cluster.client.deleteWorkload({ name: 'high' }));
    await cluster.advance(5_000);
    expect(await readyOf(cluster, 'batch')).toBe(6);
  });

  it('holds the freed resources while the coordinator restarts and another workload waits', async () => {
    const cluster = await startCluster(1);
    await createWorkload(cluster, 'batch', { priority: 10, replicas: 2, rollout: PREEMPTIBLE });
    const agent = cluster.agents.get('node-1')!;
    agent.obeysStops = false;
    await createWorkload(cluster, 'high', { priority: 200, replicas: 1 });
    await createWorkload(cluster, 'other', { priority: 100, replicas: 1 });
    await cluster.complete(() => cluster.restartCoordinator());
    await cluster.reconnect('node-1');
    agent.obeysStops = true;
    for (const { replicaId, phase } of agent.replicas.values())
      if (phase === 4) agent.change(replicaId, { phase: 5, ready: false });
    await cluster.advance(5_000);
    expect(await readyOf(cluster, 'high')).toBe(1);
    expect(await readyOf(cluster, 'batch')).toBe(1);
    expect(await readyOf(cluster, 'other')).toBe(0);
  });

  it('makes room on each node for a GLOBAL workload', async () => {
    const cluster = await startCluster(3);
    await createWorkload(cluster, 'batch', { priority: 10, replicas: 6, rollout: PREEMPTIBLE });
    await createWorkload(cluster, 'everywhere', { priority: 200, mode: 1 });
    expect(await readyOf(cluster, 'everywhere')).toBe(3);
    expect(await readyOf(cluster, 'batch')).toBe(3);
  });

  it('evicts replicas of a GLOBAL workload, which return when the resources are free again', async () => {
    const cluster = await startCluster(2);
    await createWorkload(cluster, 'everywhere', { priority: 10, mode: 1, rollout: PREEMPTIBLE });
    await createWorkload(cluster, 'high', { priority: 200, replicas: 4 });
    expect(await readyOf(cluster, 'high')).toBe(4);
    expect(await readyOf(cluster, 'everywhere')).toBe(0);
    await cluster.complete(() => cluster.client.scaleWorkload({ name: 'high', replicas: 1 }));
    await cluster.advance(5_000);
    expect(await readyOf(cluster, 'everywhere')).toBe(2);
  });

  it('commits nothing while replicas wait for room that min_available prevents', async () => {
    const cluster = await startCluster(2);
    await createWorkload(cluster, 'steady', {
      priority: 10,
      replicas: 4,
      rollout: { minAvailable: 4 },
    });
    await createWorkload(cluster, 'high', { priority: 200, replicas: 2 });
    const { revision } = cluster.state.view();
    await cluster.advance(60_000, 500);
    expect(cluster.state.view().revision).toBe(revision);
    expect(await readyOf(cluster, 'steady')).toBe(4);
  });

  it('comes to an end when workloads of several priorities want more than the nodes have', async () => {
    const cluster = await startCluster(3);
    const violations: string[] = [];
    cluster.state.subscribe((changes) => {
      const view = cluster.state.view();
      const alive = new Set([...view.nodes()].map(({ value }) => value.id));
      const nodeFacts = { alive, draining: new Set<string>(), cordoned: new Set<string>() };
      for (const check of COMMIT_CHECKERS) violations.push(...check({ view, changes, nodeFacts }));
    });
    for (const priority of [101, 300, 200, 400, 150])
      await createWorkload(cluster, `p${priority}`, {
        priority,
        replicas: 3,
        rollout: PREEMPTIBLE,
      });
    await cluster.advance(30_000, 50);
    const { revision } = cluster.state.view();
    await cluster.advance(30_000, 500);
    expect(cluster.state.view().revision).toBe(revision);
    const ready = await Promise.all(
      [400, 300, 200, 150, 101].map((priority) => readyOf(cluster, `p${priority}`)),
    );
    expect({ ready, violations }).toEqual({ ready: [3, 3, 0, 0, 0], violations: [] });
  });
});

describe('preview of a preemption', () => {
  it('is in the plan and in the explanation, and comes true', async () => {
    const cluster = await startCluster(2);
    await createWorkload(cluster, 'batch', { priority: 10, replicas: 4, rollout: PREEMPTIBLE });
    const spec = {
      command: ['serve'],
      priority: 200,
      replicas: 3,
      resources: { requests: { cpuMillis: 2_000 } },
    };
    const plan = await cluster.complete(() =>
      cluster.client.createPlan({
        validateOnly: true,
        changes: [{ change: { case: 'apply', value: { name: 'high', spec } } }],
      }),
    );
    const [workload] = plan.workloads;
    expect(workload?.warnings).toEqual([
      'would preempt 2 replicas of default/batch on node-1, 1 replica of default/batch on node-2',
    ]);
    expect(workload).toMatchObject({ unplaced: 0, totalPlacements: 3 });
    await createWorkload(cluster, 'high', { priority: 200, replicas: 3 });
    expect((await replicasOf(cluster, 'high')).map(({ nodeId }) => nodeId).sort()).toEqual([
      'node-1',
      'node-1',
      'node-2',
    ]);
    expect(await explain(cluster, 'high')).toBe(
      'would preempt 1 replica of default/batch on node-2',
    );
    expect(await explain(cluster, 'batch')).toBe('');
  });

  it('names the min_available that prevents a preemption', async () => {
    const cluster = await startCluster(1);
    await createWorkload(cluster, 'steady', {
      priority: 10,
      replicas: 2,
      rollout: { minAvailable: 2 },
    });
    await createWorkload(cluster, 'high', { priority: 200, replicas: 1 });
    expect(await explain(cluster, 'high')).toBe(
      'prevented by min_available: would preempt 1 replica of default/steady on node-1, but default/steady has 2 available replicas and min_available 2',
    );
  });

  it('says where a waiting replica holds resources, and that evictions would not help', async () => {
    const cluster = await startCluster(1);
    await createWorkload(cluster, 'batch', { priority: 10, replicas: 2, rollout: PREEMPTIBLE });
    cluster.agents.get('node-1')!.obeysStops = false;
    await createWorkload(cluster, 'high', { priority: 200, replicas: 1 });
    expect(await explain(cluster, 'high')).toBe(
      'a replica waits for preempted replicas on node-1 to stop and holds its resources there',
    );
    const [stopping] = (await replicasOf(cluster, 'batch')).filter(({ leaving }) => leaving);
    expect(stopping?.reason).toBe('preempted by default/high of priority 200');
    await createWorkload(cluster, 'small', { priority: 300, replicas: 1, rollout: {} });
    await createWorkload(cluster, 'late', { priority: 150, replicas: 2 });
    expect(await explain(cluster, 'late')).toBe(
      'would not help: no node fits even without its replicas of a priority below 150',
    );
  });
});

const explain = async (cluster: TestCluster, name: string): Promise<string> =>
  (await cluster.complete(() => cluster.client.explainWorkload({ name }))).preemption;

describe('random worlds in which workloads of different priorities compete', () => {
  it.each(Array.from({ length: 12 }, (_, index) => index + 1))(
    'keep all invariants and converge, seed %i',
    async (seed) => {
      const world = await RandomWorld.start(seed, seed % 4 === 0 ? 'slow' : 'fast', {
        priorities: true,
      });
      for (let step = 0; step < 60 && world.violations.length === 0; step += 1) await world.step();
      const differences = world.violations.length > 0 ? [] : await world.healAndSettle(120_000);
      expect({ violations: world.violations, differences, history: world.history }).toEqual({
        violations: [],
        differences: [],
        history: world.history,
      });
    },
  );
});
