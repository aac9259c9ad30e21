import { durationFromMs, type Duration } from '@bufbuild/protobuf/wkt';
import {
  DrainStatus_Phase as DrainPhase,
  ReplicaStatus_Phase as Phase,
  Taint_Effect as Effect,
  type DrainStatus,
  type Node,
} from '@cloudless/api';
import { startCluster, createWeb, readWeb } from '../test-cluster/web-workload.js';
import type { TestCluster } from '../index.js';

/** Replicas become available at once and stop at once. */
const QUICK = { rollout: { minReadyDuration: durationFromMs(0) } };
/** Replicas of which none may be unavailable. */
const fullFloor = (replicas: number) => ({
  replicas,
  rollout: { ...QUICK.rollout, minAvailable: replicas },
});

const readNode = (cluster: TestCluster, nodeId: string): Promise<Node> =>
  cluster.complete(() => cluster.client.getNode({ nodeId }));
const drainOf = async (cluster: TestCluster, nodeId: string): Promise<DrainStatus | undefined> =>
  (await readNode(cluster, nodeId)).status?.drain;
const drain = (
  cluster: TestCluster,
  nodeId: string,
  options: { deadline?: Duration; force?: boolean } = {},
): Promise<Node> => cluster.complete(() => cluster.client.drainNode({ nodeId, ...options }));
const drainAtOnce = (cluster: TestCluster, ...nodeIds: string[]): Promise<Node[]> =>
  cluster.complete(() =>
    Promise.all(nodeIds.map((nodeId) => cluster.client.drainNode({ nodeId }))),
  );
const messagesOf = (cluster: TestCluster, ...reasons: string[]): string[] =>
  cluster.state
    .view()
    .events()
    .filter(({ reason }) => reasons.includes(reason))
    .map(({ message }) => message);

/** Lets time pass and returns the lowest number of ready replicas. */
async function lowestReady(cluster: TestCluster, forMs: number, stepMs = 10): Promise<number> {
  let lowest = Number.POSITIVE_INFINITY;
  for (let passed = 0; passed < forMs; passed += stepMs) {
    await cluster.advance(stepMs);
    lowest = Math.min(lowest, (await readWeb(cluster)).status?.readyReplicas ?? 0);
  }
  return lowest;
}

async function nodesInUse(cluster: TestCluster): Promise<readonly string[]> {
  const { status } = await readWeb(cluster);
  return [
    ...new Set(status?.replicas.filter(({ ready }) => ready).map(({ nodeId }) => nodeId)),
  ].sort();
}

/**
 * Starts two nodes on which every replica of `web` needs a node of its own, so that no node is
 * free.
 */
async function startCrowdedCluster(): Promise<TestCluster> {
  const cluster = await startCluster(2);
  await createWeb(cluster, { ...fullFloor(2), resources: { requests: { cpuMillis: 3_000 } } });
  await cluster.advance(1_000);
  expect(await nodesInUse(cluster)).toEqual(['node-1', 'node-2']);
  return cluster;
}

/** Watches the drain of a node: `seen` grows by each changed state. */
function watchDrain(cluster: TestCluster, nodeId: string) {
  const seen: string[] = [];
  const watch = new AbortController();
  const following = (async () => {
    for await (const { node } of cluster.client.watchNodes({ nodeId }, { signal: watch.signal })) {
      const shown = node?.status?.drain;
      if (shown === undefined) continue;
      const text =
        `${DrainPhase[shown.phase]} ${shown.remaining}/${shown.total} ${shown.waiting.join()}`.trimEnd();
      if (seen.at(-1) !== text) seen.push(text);
    }
  })();
  const end = async (): Promise<readonly string[]> => {
    watch.abort();
    await expect(following).rejects.toThrow();
    return seen;
  };
  return { seen, end };
}

describe('drain of a node', () => {
  it('replaces its replicas, reports progress, and completes when no replica is left', async () => {
    const cluster = await startCluster(3);
    await createWeb(cluster, fullFloor(6));
    await cluster.advance(1_000);
    const started = await drain(cluster, 'node-1');
    expect(started).toMatchObject({ cordoned: true, draining: true });
    expect(started.status?.drain).toMatchObject({
      phase: DrainPhase.DRAINING,
      force: false,
      total: 2,
      remaining: 2,
    });
    expect(await lowestReady(cluster, 3_000)).toBe(6);
    expect(await readNode(cluster, 'node-1')).toMatchObject({ cordoned: true, draining: true });
    expect(await drainOf(cluster, 'node-1')).toMatchObject({
      phase: DrainPhase.DRAINED,
      total: 2,
      remaining: 0,
      waiting: [],
    });
    expect(messagesOf(cluster, 'NodeDraining', 'NodeDrained')).toEqual([
      'node node-1 is being drained: 2 replicas to move',
      'node node-1 is drained: nothing is left of the 2 replicas it held; it stays cordoned until it is uncordoned',
    ]);
  });

  it('completes at once on an empty node, and a second call does not start it again', async () => {
    const cluster = await startCluster(1);
    await drain(cluster, 'node-1');
    await cluster.advance(100);
    await drain(cluster, 'node-1');
    await drain(cluster, 'node-1', { deadline: durationFromMs(1) });
    await cluster.advance(100);
    expect(await drainOf(cluster, 'node-1')).toMatchObject({ phase: DrainPhase.DRAINED, total: 0 });
    expect(
      messagesOf(cluster, 'NodeDraining', 'NodeDrainChanged', 'NodeDrained', 'NodeDrainFailed'),
    ).toHaveLength(2);
  });

  it('takes new options from a later call, and keeps its options when the call has none', async () => {
    const cluster = await startCrowdedCluster();
    await drain(cluster, 'node-1', { deadline: durationFromMs(60_000) });
    const { deadline } = (await drainOf(cluster, 'node-1'))!;
    await drain(cluster, 'node-1');
    expect((await drainOf(cluster, 'node-1'))?.deadline).toEqual(deadline);
    await drain(cluster, 'node-1', { deadline: durationFromMs(600_000), force: true });
    expect((await drainOf(cluster, 'node-1'))?.deadline?.seconds).toBe(deadline!.seconds + 540n);
    await drain(cluster, 'node-1', { force: true });
    await drain(cluster, 'node-1', { force: true });
    const messages = messagesOf(cluster, 'NodeDraining', 'NodeDrainChanged').map((text) =>
      text.replaceAll(/\d{4}-[^ ,;]+Z/g, '<time>'),
    );
    expect(messages).toEqual([
      'node node-1 is being drained: 1 replica to move, by <time>, or the drain fails',
      'the drain of node node-1 was changed, by <time>; the remaining replicas are then stopped regardless of min_available',
      'the drain of node node-1 was changed, at once and regardless of min_available',
    ]);
    await cluster.advance(1_000);
    expect(await drainOf(cluster, 'node-1')).toMatchObject({
      phase: DrainPhase.DRAINED,
      force: true,
    });
  });

  it('waits with a reason while no other node has capacity, then continues', async () => {
    const cluster = await startCrowdedCluster();
    await drain(cluster, 'node-1');
    await cluster.advance(5_000);
    const status = await drainOf(cluster, 'node-1');
    expect(status).toMatchObject({ phase: DrainPhase.DRAINING, total: 1, remaining: 1 });
    expect(status?.waiting).toEqual([
      expect.stringMatching(
        /^default\/web: 1 replica: 1 replacement has no node: no node fits: needs 3 CPU, more than is free: 2 of 2 nodes; being drained: 1 of 2 nodes$/,
      ),
    ]);
    await cluster.addNode('node-3');
    expect(await lowestReady(cluster, 3_000)).toBe(2);
    expect(await drainOf(cluster, 'node-1')).toMatchObject({ phase: DrainPhase.DRAINED });
    expect(await nodesInUse(cluster)).toEqual(['node-2', 'node-3']);
  });

  it('fails at its deadline, reports the remaining replicas, and moves no more', async () => {
    const cluster = await startCrowdedCluster();
    await drain(cluster, 'node-1', { deadline: durationFromMs(10_000) });
    expect(await lowestReady(cluster, 9_500, 100)).toBe(2);
    expect(await readNode(cluster, 'node-1')).toMatchObject({ draining: true });
    expect(await lowestReady(cluster, 2_000)).toBe(2);
    expect(await readNode(cluster, 'node-1')).toMatchObject({ draining: false, cordoned: true });
    expect(await drainOf(cluster, 'node-1')).toMatchObject({
      phase: DrainPhase.FAILED,
      total: 1,
      remaining: 1,
    });
    expect(messagesOf(cluster, 'NodeDrainFailed')).toEqual([
      expect.stringMatching(
        /^the drain of node node-1 has failed: its deadline has passed with 1 of 1 replica left; .*Left: default\/web: 1 replica: 1 replacement has no node/,
      ),
    ]);
    await cluster.addNode('node-3');
    await cluster.advance(3_000);
    expect(await nodesInUse(cluster)).toEqual(['node-1', 'node-2']); // The drain moves no more replicas.
    expect((await readWeb(cluster)).status).toMatchObject({ totalReplicas: 2 });
    await drain(cluster, 'node-1');
    expect(await lowestReady(cluster, 3_000)).toBe(2);
    expect(await drainOf(cluster, 'node-1')).toMatchObject({ phase: DrainPhase.DRAINED });
  });

  it('with force and no deadline stops replicas at once, below min_available', async () => {
    const cluster = await startCrowdedCluster();
    await drain(cluster, 'node-1', { force: true });
    await cluster.advance(1_000);
    expect(await drainOf(cluster, 'node-1')).toMatchObject({
      phase: DrainPhase.DRAINED,
      force: true,
      remaining: 0,
    });
    expect((await readWeb(cluster)).status).toMatchObject({ readyReplicas: 1 });
    expect(messagesOf(cluster, 'ReplicasStopping')).toEqual([
      '1 replica ordered to stop: the drain of the node is forced; 1 available replica remains, min_available 2 is not enforced',
    ]);
  });

  it('with force and a deadline keeps min_available until the deadline and stops the remaining replicas then', async () => {
    const cluster = await startCrowdedCluster();
    await drain(cluster, 'node-1', { deadline: durationFromMs(10_000), force: true });
    expect(await lowestReady(cluster, 9_500, 100)).toBe(2);
    expect(await drainOf(cluster, 'node-1')).toMatchObject({
      phase: DrainPhase.DRAINING,
      remaining: 1,
    });
    await cluster.advance(2_000);
    expect(await drainOf(cluster, 'node-1')).toMatchObject({
      phase: DrainPhase.DRAINED,
      remaining: 0,
    });
    expect(messagesOf(cluster, 'NodeDrainFailed')).toEqual([]);
  });

  it('ends when the node is uncordoned', async () => {
    const cluster = await startCrowdedCluster();
    await drain(cluster, 'node-1', { deadline: durationFromMs(10_000), force: true });
    await cluster.advance(2_000);
    const node = await cluster.complete(() => cluster.client.uncordonNode({ nodeId: 'node-1' }));
    expect(node).toMatchObject({ cordoned: false, draining: false });
    expect(node.status?.drain).toBeUndefined();
    expect(await lowestReady(cluster, 20_000, 100)).toBe(2);
    expect(await nodesInUse(cluster)).toEqual(['node-1', 'node-2']);
    // The replacement is removed.
    expect((await readWeb(cluster)).status).toMatchObject({ totalReplicas: 2 });
  });

  it.each([
    { name: 'and the drain continues', options: {}, phase: DrainPhase.DRAINING, ready: 2 },
    {
      name: "and the deadline still counts from the drain's start",
      options: { deadline: durationFromMs(10_000) },
      phase: DrainPhase.FAILED,
      ready: 2,
    },
    {
      name: 'and force still applies',
      options: { deadline: durationFromMs(10_000), force: true },
      phase: DrainPhase.DRAINED,
      ready: 1,
    },
  ])('survives a crash of the coordinator $name', async ({ options, phase, ready }) => {
    const cluster = await startCrowdedCluster();
    await drain(cluster, 'node-1', options);
    await cluster.advance(5_000);
    await cluster.restartCoordinator();
    for (const nodeId of ['node-1', 'node-2']) await cluster.reconnect(nodeId);
    await cluster.advance(4_000);
    expect(await drainOf(cluster, 'node-1')).toMatchObject({
      phase: DrainPhase.DRAINING,
      total: 1,
      remaining: 1,
    });
    await cluster.advance(2_000);
    expect(await drainOf(cluster, 'node-1')).toMatchObject({ phase });
    expect((await readWeb(cluster)).status).toMatchObject({ readyReplicas: ready });
    await cluster.addNode('node-3');
    await cluster.advance(3_000);
    expect((await readWeb(cluster)).status).toMatchObject({ readyReplicas: 2, totalReplicas: 2 });
    if (phase !== DrainPhase.FAILED)
      expect(await drainOf(cluster, 'node-1')).toMatchObject({ phase: DrainPhase.DRAINED });
  });

  it('leaves no records when the node is removed during the drain', async () => {
    const cluster = await startCluster(2);
    await createWeb(cluster, { ...QUICK, replicas: 2 });
    await cluster.advance(1_000);
    await drain(cluster, 'node-1');
    await cluster.advance(2_000);
    cluster.agents.get('node-1')!.disconnect();
    await cluster.complete(() => cluster.client.removeNode({ nodeId: 'node-1' }));
    await cluster.advance(1_000);
    expect(
      (await cluster.complete(() => cluster.client.listNodes({}))).nodes.map(({ id }) => id),
    ).toEqual(['node-2']);
  });

  it('completes only when the agent has confirmed every stop', async () => {
    const cluster = await startCluster(2);
    await createWeb(cluster, { ...QUICK, replicas: 2 });
    await cluster.advance(1_000);
    const agent = cluster.agents.get('node-1')!;
    agent.obeysStops = false;
    await drain(cluster, 'node-1');
    await cluster.advance(3_000);
    expect(await drainOf(cluster, 'node-1')).toMatchObject({
      phase: DrainPhase.DRAINING,
      remaining: 1,
      waiting: ['default/web: 1 replica: stopping (grace period)'],
    });
    for (const replicaId of agent.replicas.keys())
      agent.change(replicaId, { phase: Phase.STOPPED });
    await cluster.advance(100);
    expect(await drainOf(cluster, 'node-1')).toMatchObject({ phase: DrainPhase.DRAINED });
  });

  it('shows each step and its reason in a watch', async () => {
    const cluster = await startCrowdedCluster();
    const watch = watchDrain(cluster, 'node-1');
    await cluster.advance(100);
    await drain(cluster, 'node-1');
    await cluster.advance(1_000);
    await cluster.addNode('node-3');
    await cluster.advance(1_000);
    const seen = (await watch.end()).map((text) => text.replace(/no node: .*/, 'no node'));
    expect(seen[0]).toBe('DRAINING 1/1 default/web: 1 replica: about to be replaced');
    expect(seen).toContain('DRAINING 1/1 default/web: 1 replica: 1 replacement has no node');
    expect(seen).toContain('DRAINING 1/1 default/web: 1 replica: stopping (grace period)');
    expect(seen.at(-1)).toBe('DRAINED 0/1');
  });

  it('with max_surge 0 stops first and one by one, and never runs more replicas than wanted', async () => {
    const cluster = await startCluster(3);
    const rollout = { minReadyDuration: durationFromMs(1_000), maxSurge: 0, maxUnavailable: 1 };
    await createWeb(cluster, { replicas: 6, rollout });
    await cluster.advance(2_000);
    let most = 0;
    let fewestReady = Infinity;
    cluster.state.subscribe(() => {
      const records = [...cluster.state.view().replicas()].map(({ value }) => value);
      most = Math.max(most, records.filter(({ phase }) => phase !== Phase.STOPPED).length);
      const ready = records.filter((replica) => replica.ready && replica.desiredRunning);
      fewestReady = Math.min(fewestReady, ready.length);
    });
    await drainAtOnce(cluster, 'node-1', 'node-2');
    await cluster.advance(15_000, 20);
    expect({ most, fewestReady }).toEqual({ most: 6, fewestReady: 5 });
    expect(await nodesInUse(cluster)).toEqual(['node-3']);
    for (const nodeId of ['node-1', 'node-2'])
      expect(await drainOf(cluster, nodeId)).toMatchObject({ phase: DrainPhase.DRAINED });
  });

  it('with max_surge 0 says what a replica waits for while another is not ready', async () => {
    const cluster = await startCluster(3);
    const rollout = { ...QUICK.rollout, maxSurge: 0, maxUnavailable: 1 };
    await createWeb(cluster, { replicas: 3, rollout });
    await cluster.advance(1_000);
    const agent = cluster.agents.get('node-3')!;
    const [replicaId] = agent.replicas.keys();
    agent.change(replicaId!, { ready: false });
    await cluster.advance(100);
    await drain(cluster, 'node-1');
    expect(await lowestReady(cluster, 5_000)).toBe(2);
    expect(await drainOf(cluster, 'node-1')).toMatchObject({
      phase: DrainPhase.DRAINING,
      waiting: [
        'default/web: 1 replica: 2 of 3 replicas are ready, 1 not yet; 1 replica that has to leave its node stops before its replacement starts, and waits until 3 are ready: to go on before that, raise max_unavailable, and lower min_available if it is set',
      ],
    });
    agent.change(replicaId!, { ready: true });
    expect(await lowestReady(cluster, 3_000)).toBeGreaterThanOrEqual(2);
    expect(await drainOf(cluster, 'node-1')).toMatchObject({ phase: DrainPhase.DRAINED });
    expect(await nodesInUse(cluster)).toEqual(['node-2', 'node-3']);
  });

  it('shows a new reason in a watch when other nodes or replicas change the reason', async () => {
    const cluster = await startCluster(2);
    const rollout = { minReadyDuration: durationFromMs(3_000), minAvailable: 2 };
    await createWeb(cluster, {
      replicas: 2,
      rollout,
      resources: { requests: { cpuMillis: 3_000 } },
    });
    await cluster.advance(5_000);
    const watch = watchDrain(cluster, 'node-1');
    await drain(cluster, 'node-1');
    await cluster.advance(1_000);
    expect(watch.seen.at(-1)).toContain(
      'needs 3 CPU, more than is free: 2 of 2 nodes; being drained: 1 of 2 nodes',
    );
    await cluster.addNode('node-3', {
      capacity: { cpuMillis: 1_000, memoryBytes: 8n * 1024n ** 3n },
    });
    await cluster.advance(1_000);
    expect(watch.seen.at(-1)).toContain('more than is free: 2 of 3 nodes');
    await cluster.addNode('node-4');
    await cluster.advance(1_000);
    expect(watch.seen.at(-1)).toContain('default/web: 1 replica: settling');
    await cluster.advance(4_000);
    expect((await watch.end()).at(-1)).toBe('DRAINED 0/1');
  });

  it('lists at most twenty waiting workloads, and the number of the others', async () => {
    const cluster = await startCluster(1);
    for (let number = 32; number >= 10; number -= 1) {
      await cluster.complete(() =>
        cluster.client.createWorkload({ name: `w${number}`, spec: { command: ['serve'] } }),
      );
    }
    await cluster.advance(1_000);
    const { waiting = [] } = (await drain(cluster, 'node-1')).status?.drain ?? {};
    expect(waiting).toHaveLength(21);
    expect([waiting[0], waiting[20]]).toEqual([
      expect.stringMatching(/^default\/w10: 1 replica: /),
      'and 3 more workloads',
    ]);
  });
});

describe('concurrent drains', () => {
  it('keep min_available of a workload that runs on all drained nodes', async () => {
    const cluster = await startCluster(5);
    await createWeb(cluster, {
      ...QUICK,
      replicas: 10,
      rollout: { ...QUICK.rollout, minAvailable: 9 },
    });
    await cluster.advance(1_000);
    await drainAtOnce(cluster, 'node-1', 'node-2', 'node-3');
    expect(await lowestReady(cluster, 5_000)).toBeGreaterThanOrEqual(9);
    for (const nodeId of ['node-1', 'node-2', 'node-3']) {
      expect(await drainOf(cluster, nodeId)).toMatchObject({
        phase: DrainPhase.DRAINED,
        remaining: 0,
      });
    }
    expect(await nodesInUse(cluster)).toEqual(['node-4', 'node-5']);
  });

  it('of every node wait with a reason until one node is uncordoned', async () => {
    const cluster = await startCluster(3);
    await createWeb(cluster, {
      ...QUICK,
      replicas: 3,
      rollout: { ...QUICK.rollout, minAvailable: 2 },
    });
    await cluster.advance(1_000);
    await drainAtOnce(cluster, 'node-1', 'node-2', 'node-3');
    expect(await lowestReady(cluster, 10_000, 100)).toBeGreaterThanOrEqual(2);
    const statuses = await Promise.all(
      ['node-1', 'node-2', 'node-3'].map((nodeId) => drainOf(cluster, nodeId)),
    );
    const waiting = statuses
      .filter((status) => status?.phase === DrainPhase.DRAINING)
      .flatMap((status) => status?.waiting ?? []);
    expect(waiting.length).toBeGreaterThanOrEqual(2);
    for (const line of waiting)
      expect(line).toMatch(/no node: no node fits: being drained: 3 of 3 nodes$/);
    await cluster.complete(() => cluster.client.uncordonNode({ nodeId: 'node-2' }));
    expect(await lowestReady(cluster, 5_000)).toBeGreaterThanOrEqual(2);
    expect(await nodesInUse(cluster)).toEqual(['node-2']);
    for (const nodeId of ['node-1', 'node-3'])
      expect(await drainOf(cluster, nodeId)).toMatchObject({ phase: DrainPhase.DRAINED });
  });

  it.each([1, 2, 3])('keep min_available during a rollout (seed %i)', async (seed) => {
    const cluster = await startCluster(5, { seed });
    await createWeb(cluster, {
      replicas: 8,
      rollout: { minReadyDuration: durationFromMs(200), minAvailable: 7 },
    });
    await cluster.advance(2_000);
    await cluster.complete(() =>
      cluster.client.updateWorkload({ name: 'web', spec: { env: { RELEASE: '2' } } }),
    );
    await cluster.advance(seed * 150);
    await drainAtOnce(cluster, 'node-1', 'node-2');
    await cluster.complete(() => cluster.client.scaleWorkload({ name: 'web', replicas: 9 }));
    expect(await lowestReady(cluster, 20_000, 20)).toBeGreaterThanOrEqual(7);
    const { status } = await readWeb(cluster);
    expect(status).toMatchObject({ readyReplicas: 9, updatedReplicas: 9, totalReplicas: 9 });
    expect(await nodesInUse(cluster)).toEqual(['node-3', 'node-4', 'node-5']);
    for (const nodeId of ['node-1', 'node-2'])
      expect(await drainOf(cluster, nodeId)).toMatchObject({ phase: DrainPhase.DRAINED });
  });
});

describe('NO_EXECUTE taint', () => {
  const TAINT = { key: 'evil', value: 'yes', effect: Effect.NO_EXECUTE };
  const taint = (cluster: TestCluster, nodeId: string): Promise<Node> =>
    cluster.complete(() => cluster.client.updateNode({ nodeId, setTaints: [TAINT] }));
  const startWithTolerations = async (
    tolerations: readonly object[],
    seed = 1,
  ): Promise<TestCluster> => {
    const cluster = await startCluster(3, { seed });
    await createWeb(cluster, { ...fullFloor(3), placement: { tolerations } });
    await cluster.advance(1_000);
    expect(await nodesInUse(cluster)).toEqual(['node-1', 'node-2', 'node-3']);
    return cluster;
  };

  it('replaces replicas that do not tolerate the taint within min_available, with a reason', async () => {
    const cluster = await startWithTolerations([]);
    await taint(cluster, 'node-1');
    expect(await lowestReady(cluster, 3_000)).toBe(3);
    expect(await nodesInUse(cluster)).toEqual(['node-2', 'node-3']);
    expect(await readNode(cluster, 'node-1')).toMatchObject({ cordoned: false, draining: false });
    expect(messagesOf(cluster, 'ReplicasStopping')).toEqual([
      '1 replica ordered to stop: a taint of the node is not tolerated; 3 available replicas remain, min_available is 3',
    ]);
    const stopping = cluster.state
      .view()
      .events()
      .find(({ reason }) => reason === 'ReplicasStopping')!;
    expect(cluster.state.view().event(stopping.causeId)?.value.reason).toBe('NodeUpdated');
  });

  it('keeps replicas that tolerate the taint', async () => {
    const cluster = await startWithTolerations([{ key: 'evil', value: 'yes' }]);
    await taint(cluster, 'node-1');
    await cluster.advance(60_000, 1_000);
    expect(await nodesInUse(cluster)).toEqual(['node-1', 'node-2', 'node-3']);
    expect(messagesOf(cluster, 'ReplicasStopping')).toEqual([]);
  });

  it('replaces a replica when its toleration period since the taint was set has ended, also across a restart of the coordinator, and keeps new replicas off the node', async () => {
    const cluster = await startWithTolerations([
      { key: 'evil', value: 'yes', tolerationPeriod: durationFromMs(30_000) },
    ]);
    await taint(cluster, 'node-1');
    await cluster.advance(15_000, 100);
    await cluster.restartCoordinator();
    for (const nodeId of cluster.agents.keys()) await cluster.reconnect(nodeId);
    await cluster.advance(14_000, 100);
    await cluster.complete(() => cluster.client.scaleWorkload({ name: 'web', replicas: 4 }));
    await cluster.advance(500);
    expect(await nodesInUse(cluster)).toContain('node-1');
    const onTainted = (await readWeb(cluster)).status?.replicas.filter(
      ({ nodeId }) => nodeId === 'node-1',
    );
    expect(onTainted).toHaveLength(1);
    expect(await lowestReady(cluster, 3_000)).toBeGreaterThanOrEqual(3);
    expect(await nodesInUse(cluster)).toEqual(['node-2', 'node-3']);
    await cluster.advance(60_000, 500);
    // No replica is placed on the node and stopped again.
    expect(messagesOf(cluster, 'ReplicasStopping')).toHaveLength(1);
  });

  it('moves no replica when it is removed before the toleration time ends', async () => {
    const cluster = await startWithTolerations([
      { key: 'evil', value: 'yes', tolerationPeriod: durationFromMs(10_000) },
    ]);
    await taint(cluster, 'node-1');
    await cluster.advance(8_000, 100);
    await cluster.complete(() =>
      cluster.client.updateNode({ nodeId: 'node-1', removeTaints: ['evil'] }),
    );
    await cluster.advance(8_000, 100);
    await taint(cluster, 'node-1'); // The toleration time starts again.
    await cluster.advance(8_000, 100);
    expect(await nodesInUse(cluster)).toEqual(['node-1', 'node-2', 'node-3']);
    await cluster.advance(4_000, 100);
    expect(await nodesInUse(cluster)).toEqual(['node-2', 'node-3']);
  });

  it('starts the toleration time again when its value changes', async () => {
    const cluster = await startWithTolerations([
      { key: 'evil', operator: 1, tolerationPeriod: durationFromMs(10_000) },
    ]);
    await taint(cluster, 'node-1');
    await cluster.advance(8_000, 100);
    const setTaints = [{ ...TAINT, value: 'very' }];
    await cluster.complete(() => cluster.client.updateNode({ nodeId: 'node-1', setTaints }));
    await cluster.advance(8_000, 100);
    await cluster.complete(() =>
      cluster.client.updateNode({ nodeId: 'node-1', setTaints, setLabels: { disk: 'ssd' } }),
    );
    expect(await nodesInUse(cluster)).toEqual(['node-1', 'node-2', 'node-3']);
    await cluster.advance(4_000, 100); // Setting the same taint again does not restart its time.
    expect(await nodesInUse(cluster)).toEqual(['node-2', 'node-3']);
  });

  it('of an agent starts toleration periods at the first Hello that contained it, and loses this time at a Hello without it', async () => {
    const cluster = await startWithTolerations([
      { key: 'evil', value: 'yes', tolerationPeriod: durationFromMs(10_000) },
    ]);
    const agent = cluster.agents.get('node-1')!;
    const reconnectWithHello = async (hello: object): Promise<void> => {
      agent.disconnect();
      agent.hello = { zone: 'zone-1', ...hello };
      await cluster.advance(100);
      await cluster.reconnect('node-1');
    };
    await reconnectWithHello({ taints: [TAINT] });
    await cluster.advance(6_000, 100);
    await reconnectWithHello({ taints: [TAINT], labels: { disk: 'ssd' } });
    await cluster.advance(3_000, 100);
    expect(await nodesInUse(cluster)).toContain('node-1');
    await cluster.advance(2_500, 100);
    expect(await nodesInUse(cluster)).toEqual(['node-2', 'node-3']);
    await reconnectWithHello({});
    expect(cluster.state.view().node('node-1')?.value.taintsSince).toEqual({});
  });
});
