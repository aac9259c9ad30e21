import { durationFromMs } from '@bufbuild/protobuf/wkt';
import { createClient } from '@connectrpc/connect';
import {
  NetworkService,
  RolloutStatus_Phase as RolloutPhase,
  Rollout_OnFailure as OnFailure,
  Rollout_Strategy as Strategy,
  ServiceSpec_Type as Type,
  WorkloadSpec_Mode as Mode,
} from '@cloudless/api';
import { placementsFit } from '../checks/commit-checkers.js';
import { TestCluster } from '../index.js';
import { RandomWorld } from '../test-cluster/random-world.js';
import { RolloutScenario } from '../test-cluster/rollout-scenario.js';
import { createWeb, readWeb } from '../test-cluster/web-workload.js';

const capabilities = ['runtime.cri', 'ports.host', 'network.host'];
/** A node has capacity for many such replicas, but port 8080 only once. */
const WITH_HOST_PORT = {
  command: [],
  image: 'web:1',
  ports: [{ containerPort: 80, hostPort: 8080 }],
};
const progressDeadline = durationFromMs(60_000);

/** Starts nodes with a container runtime, each in its own zone. Every placement is checked. */
async function startContainerNodes(
  count: number,
): Promise<TestCluster & { readonly violations: string[] }> {
  const cluster = await TestCluster.start();
  const violations: string[] = [];
  for (let number = 1; number <= count; number += 1) await addNode(cluster, number);
  cluster.state.subscribe((changes) => {
    const view = cluster.state.view();
    const alive = new Set([...view.nodes()].map(({ value }) => value.id));
    const nodeFacts = { alive, draining: new Set<string>(), cordoned: new Set<string>() };
    violations.push(...placementsFit({ view, changes, nodeFacts }));
  });
  return Object.assign(cluster, { violations });
}

const addNode = (cluster: TestCluster, number: number) =>
  cluster.addNode(`node-${number}`, { zone: `zone-${number}`, capabilities });
const change = { env: { COLOUR: 'green' } };
const update = (cluster: TestCluster) =>
  cluster.complete(() => cluster.client.updateWorkload({ name: 'web', spec: change }));
const plan = (cluster: TestCluster) =>
  cluster.complete(() => cluster.client.planWorkload({ name: 'web', spec: change }));

async function rolloutOf(
  cluster: TestCluster,
): Promise<{ phase: string | undefined; reason: string; ready: number; nodes: string[] }> {
  const { status } = await readWeb(cluster);
  const nodes = (status?.replicas ?? [])
    .filter(({ ready, version }) => ready && version === status?.version)
    .map(({ nodeId }) => nodeId);
  const { phase = 0, reason = '' } = status?.rollout ?? {};
  return {
    phase: RolloutPhase[phase],
    reason,
    ready: status?.readyReplicas ?? 0,
    nodes: nodes.sort(),
  };
}

/**
 * Runs an action, lets time pass, and returns the lowest number of ready replicas after any commit.
 */
async function lowestReady(
  cluster: TestCluster,
  forMs: number,
  runAction: () => Promise<unknown>,
): Promise<number> {
  const { uid } = await readWeb(cluster);
  const count = (): number => {
    const replicas = [...cluster.state.view().replicasOf(uid)].map(({ value }) => value);
    return replicas.filter(({ ready, desiredRunning }) => ready && desiredRunning).length;
  };
  let lowest = count();
  const unsubscribe = cluster.state.subscribe(() => void (lowest = Math.min(lowest, count())));
  await runAction();
  await cluster.advance(forMs, 50);
  unsubscribe();
  return lowest;
}

describe('host port of a replica', () => {
  it('is held by one replica per node, and further replicas wait with a reason', async () => {
    const cluster = await startContainerNodes(2);
    await createWeb(cluster, WITH_HOST_PORT);
    await cluster.advance(1_000);
    const waitReason = 'no node fits: host port 8080 is taken: 2 of 2 nodes';
    expect((await readWeb(cluster)).status).toMatchObject({
      readyReplicas: 2,
      reason: `1 of 3 replicas without a node: ${waitReason}`,
    });
    const explained = await cluster.complete(() => cluster.client.explainWorkload({ name: 'web' }));
    expect(explained.nodes.map(({ fits, reason }) => [fits, reason])).toEqual(
      Array(2).fill([false, 'host port 8080 is taken']),
    );
    await addNode(cluster, 3);
    await cluster.advance(1_000);
    expect(await rolloutOf(cluster)).toMatchObject({
      ready: 3,
      nodes: ['node-1', 'node-2', 'node-3'],
    });
    expect(cluster.violations).toEqual([]);
  });

  it('conflicts with an equal container port only when that replica uses the host network', async () => {
    const cluster = await startContainerNodes(1);
    await createWeb(cluster, { ...WITH_HOST_PORT, replicas: 1 });
    await cluster.advance(1_000);
    const otherSpec = { image: 'other:1', ports: [{ containerPort: 8080 }] };
    await cluster.complete(() => cluster.client.createWorkload({ name: 'apart', spec: otherSpec }));
    await cluster.complete(() =>
      cluster.client.createWorkload({
        name: 'shared',
        spec: { ...otherSpec, network: { hostNetwork: true } },
      }),
    );
    await cluster.advance(1_000);
    const statusOf = async (name: string) =>
      (await cluster.complete(() => cluster.client.getWorkload({ name }))).status;
    expect(await statusOf('apart')).toMatchObject({ readyReplicas: 1 });
    expect((await statusOf('shared'))?.reason).toContain('host port 8080 is taken: 1 of 1 nodes');
  });

  it('is held until the stop of the replica is confirmed, also when its workload is deleted', async () => {
    const cluster = await startContainerNodes(1);
    await createWeb(cluster, { ...WITH_HOST_PORT, replicas: 1 });
    await cluster.advance(1_000);
    cluster.agents.get('node-1')!.obeysStops = false;
    await cluster.complete(() => cluster.client.deleteWorkload({ name: 'web' }));
    await cluster.complete(() =>
      cluster.client.createWorkload({ name: 'next', spec: { ...WITH_HOST_PORT, replicas: 1 } }),
    );
    await cluster.advance(5_000);
    const next = async () =>
      (await cluster.complete(() => cluster.client.getWorkload({ name: 'next' }))).status;
    expect((await next())?.reason).toContain('host port 8080 is taken: 1 of 1 nodes');
    const [leaving] = cluster.agents.get('node-1')!.replicas.keys();
    cluster.agents.get('node-1')!.change(leaving!, { phase: 5, ready: false });
    await cluster.advance(1_000);
    expect(await next()).toMatchObject({ readyReplicas: 1 });
    expect(cluster.violations).toEqual([]);
  });

  it('is held on another node after a drain, when the port is free there', async () => {
    const cluster = await startContainerNodes(3);
    await createWeb(cluster, { ...WITH_HOST_PORT, replicas: 2, rollout: { minAvailable: 2 } });
    await cluster.advance(3_000);
    const drain = (nodeId: string) => cluster.complete(() => cluster.client.drainNode({ nodeId }));
    expect(await lowestReady(cluster, 5_000, () => drain('node-1'))).toBe(2);
    expect((await rolloutOf(cluster)).nodes).toEqual(['node-2', 'node-3']);
    await drain('node-2');
    await cluster.advance(2_000);
    const { status } = await cluster.complete(() => cluster.client.getNode({ nodeId: 'node-2' }));
    expect(status?.drain?.waiting).toEqual([
      expect.stringContaining('being drained: 2 of 3 nodes; host port 8080 is taken: 2 of 3 nodes'),
    ]);
    expect(cluster.violations).toEqual([]);
  });
});

describe('update of replicas with a host port on every node', () => {
  it.each([
    { name: 'one by one by default', floor: 2 },
    { name: 'one by one when no surge is allowed', rollout: { maxSurge: 0 }, floor: 2 },
    { name: 'two at a time', rollout: { maxUnavailable: 2 }, floor: 1 },
    {
      name: 'as fast as RECREATE stops and starts',
      rollout: { strategy: Strategy.RECREATE },
      floor: 0,
    },
    { name: 'one per node in mode GLOBAL', mode: Mode.GLOBAL, floor: 2 },
  ])('proceeds $name', async ({ rollout = {}, mode = Mode.REPLICATED, floor }) => {
    const cluster = await startContainerNodes(3);
    await createWeb(cluster, {
      ...WITH_HOST_PORT,
      ...(mode === Mode.GLOBAL ? { replicas: undefined, mode } : {}),
      rollout,
    });
    await cluster.advance(3_000);
    const planned = await plan(cluster);
    expect(await lowestReady(cluster, 15_000, () => update(cluster))).toBe(floor);
    expect(await rolloutOf(cluster)).toMatchObject({
      phase: 'COMPLETED',
      ready: 3,
      nodes: ['node-1', 'node-2', 'node-3'],
    });
    expect(planned).toMatchObject({ unplaced: 0, warnings: [], lowestReady: floor });
    expect(cluster.violations).toEqual([]);
  });

  it.each([
    {
      name: 'all replicas must stay ready',
      replicas: 3,
      nodes: 3,
      rollout: { minAvailable: 3 },
    },
    { name: 'there is only one replica', replicas: 1, nodes: 1, rollout: {} },
  ])(
    'waits when $name, reports how to continue, and completes when a node joins',
    async ({ replicas, nodes, rollout }) => {
      const cluster = await startContainerNodes(nodes);
      await createWeb(cluster, {
        ...WITH_HOST_PORT,
        replicas,
        rollout: { ...rollout, progressDeadline },
      });
      await cluster.advance(3_000);
      const filterReason = `no node fits: host port 8080 is taken: ${nodes} of ${nodes} nodes`;
      expect((await plan(cluster)).warnings).toEqual([
        `1 replica would find no node: ${filterReason.slice('no node fits: '.length)}`,
      ]);
      const waitReason =
        `${replicas} of ${replicas} replicas are ready, 1 extra not yet: ${filterReason}; min_available ${replicas} allows no stop before the new replica is ready: ` +
        'free resources, or lower min_available, or raise max_unavailable';
      expect(await lowestReady(cluster, 5_000, () => update(cluster))).toBe(replicas);
      expect(await rolloutOf(cluster)).toMatchObject({ phase: 'IN_PROGRESS', reason: waitReason });
      expect(await lowestReady(cluster, 20_000, () => addNode(cluster, nodes + 1))).toBe(replicas);
      expect(await rolloutOf(cluster)).toMatchObject({ phase: 'COMPLETED', ready: replicas });
      expect(cluster.violations).toEqual([]);
    },
  );

  it('commits nothing while it waits', async () => {
    const cluster = await startContainerNodes(1);
    await createWeb(cluster, {
      ...WITH_HOST_PORT,
      replicas: 1,
      rollout: { progressDeadline: durationFromMs(600_000) },
    });
    await cluster.advance(3_000);
    await update(cluster);
    await cluster.advance(5_000);
    const { revision } = cluster.state.view();
    await cluster.advance(60_000, 500);
    expect(cluster.state.view().revision).toBe(revision);
  });

  it('fails at its deadline, reports how to continue, and completes when max_unavailable is raised', async () => {
    const cluster = await startContainerNodes(1);
    await createWeb(cluster, { ...WITH_HOST_PORT, replicas: 1, rollout: { progressDeadline } });
    await cluster.advance(3_000);
    await update(cluster);
    await cluster.advance(62_000, 50);
    const { phase, reason } = await rolloutOf(cluster);
    expect(phase).toBe('FAILED');
    expect(reason).toBe(
      'no progress for 1m: 1 of 1 replicas are ready, 1 extra not yet: no node fits: host port 8080 is taken: 1 of 1 nodes; min_available 1 ' +
        'allows no stop before the new replica is ready: free resources, or lower min_available, or raise max_unavailable',
    );
    const rollout = { progressDeadline, maxUnavailable: 1 };
    await cluster.complete(() =>
      cluster.client.updateWorkload({
        name: 'web',
        spec: { rollout },
        updateMask: { paths: ['rollout'] },
      }),
    );
    await cluster.complete(() => cluster.client.resumeRollout({ name: 'web' }));
    await cluster.advance(10_000);
    expect(await rolloutOf(cluster)).toMatchObject({ phase: 'COMPLETED', nodes: ['node-1'] });
    expect(cluster.violations).toEqual([]);
  });

  it('with BLUE_GREEN needs as many free nodes as replicas and places the new set as a whole', async () => {
    const cluster = await startContainerNodes(3);
    await createWeb(cluster, {
      ...WITH_HOST_PORT,
      replicas: 2,
      rollout: { strategy: Strategy.BLUE_GREEN },
    });
    await cluster.advance(3_000);
    await update(cluster);
    await cluster.advance(3_000);
    const waitReason =
      'the new set of 2 replicas is placed as a whole, and 1 of them finds no node: host port 8080 is taken: 3 of 3 nodes';
    expect((await readWeb(cluster)).status?.reason).toBe(
      `2 of 2 replicas without a node: ${waitReason}`,
    );
    await addNode(cluster, 4);
    await cluster.advance(10_000);
    expect(await rolloutOf(cluster)).toMatchObject({ phase: 'COMPLETED', ready: 2 });
    expect(cluster.violations).toEqual([]);
  });
});

describe('host port of a version to which a rollback returns', () => {
  it('never becomes a node port before the end of the rollout', async () => {
    const nodePort = 30_080;
    const scenario = await RolloutScenario.open(3, { capabilities });
    const { cluster } = scenario;
    const client = createClient(NetworkService, cluster.transport);
    const spec = { type: Type.NODE_PORT, ports: [{ port: 80, nodePort }] };
    const createService = () =>
      cluster.complete(() => client.createService({ name: 'front', spec }));
    const withHostPort = (hostPort: number) => ({
      ...{ command: [], image: 'web:1', ports: [{ containerPort: 80, hostPort }] },
    });
    await scenario.create(
      { onFailure: OnFailure.ROLLBACK, progressDeadline: durationFromMs(3_000) },
      { ...withHostPort(nodePort), replicas: 2 },
    );
    await scenario.observe(1_000);

    scenario.setBehaviour(2, 'unready');
    await scenario.update(withHostPort(8080));
    await scenario.observe(1_000);
    expect(await scenario.rollout()).toMatchObject({ phase: 'IN_PROGRESS', version: 2 });
    await expect(createService()).rejects.toThrow(
      `${nodePort} is a host port of version 1 of workload default/web, which a rollback can restore; complete the rollout of version 2`,
    );
    await scenario.observe(4_000);
    expect(await scenario.rollout()).toMatchObject({ phase: 'ROLLED_BACK', version: 3 });
    await expect(createService()).rejects.toThrow('is a host port of workload default/web;');

    await scenario.update(withHostPort(8081));
    await scenario.observe(3_000);
    expect(await scenario.rollout()).toMatchObject({ phase: 'COMPLETED', version: 4 });
    expect((await createService()).spec?.ports).toMatchObject([{ nodePort }]);
  });
});

describe('random worlds with two workloads on the same host port', () => {
  it.each(Array.from({ length: 24 }, (_, index) => index + 1))(
    'never assign the port of a node twice, and converge, seed %i',
    async (seed) => {
      const world = await RandomWorld.start(seed, seed % 4 === 0 ? 'slow' : 'fast', {
        hostPorts: true,
      });
      for (let step = 0; step < 60; step += 1) await world.step();
      const differences = await world.healAndSettle(120_000);
      expect({
        differences,
        violations: world.violations,
        history: differences.length + world.violations.length === 0 ? [] : world.history,
      }).toEqual({
        differences: [],
        violations: [],
        history: [],
      });
    },
  );
});
