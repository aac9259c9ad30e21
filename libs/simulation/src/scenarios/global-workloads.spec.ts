import {
  ReplicaStatus_Phase as ReplicaPhase,
  RestartPolicy_Policy as Restart,
  Rollout_Strategy as Strategy,
  Taint_Effect as Effect,
  WorkloadSpec_Mode as Mode,
  WorkloadStatus_Phase as Phase,
  type ReplicaStatus,
  type Workload,
} from '@cloudless/api';
import { createSeededRandom, type Random } from '@cloudless/base';
import type { TestCluster } from '../index.js';
import { startCluster, readWeb } from '../test-cluster/web-workload.js';

/** Creates workload `web` in mode GLOBAL. */
async function createGlobal(cluster: TestCluster, spec: object = {}): Promise<void> {
  const fullSpec = { command: ['serve'], mode: Mode.GLOBAL, ...spec };
  await cluster.complete(() => cluster.client.createWorkload({ name: 'web', spec: fullSpec }));
  await cluster.advance(3_000);
}

const update = (cluster: TestCluster, spec: object): Promise<Workload> =>
  cluster.complete(() => cluster.client.updateWorkload({ name: 'web', spec }));
const wantedReplicas = ({ status }: Workload): ReplicaStatus[] =>
  (status?.replicas ?? []).filter(
    ({ leaving, phase }) => !leaving && phase <= ReplicaPhase.RUNNING,
  );
/** Nodes of the wanted replicas, sorted. */
const nodesOf = async (cluster: TestCluster): Promise<string[]> =>
  wantedReplicas(await readWeb(cluster))
    .map(({ nodeId }) => nodeId)
    .sort();
const idOn = async (cluster: TestCluster, nodeId: string): Promise<string | undefined> =>
  wantedReplicas(await readWeb(cluster)).find((replica) => replica.nodeId === nodeId)?.id;
const changeNode = (cluster: TestCluster, nodeId: string, change: object) =>
  cluster.complete(() => cluster.client.updateNode({ nodeId, ...change }));

describe('GLOBAL workload', () => {
  it('runs one replica per node, and one more when a node joins', async () => {
    const cluster = await startCluster(3);
    await createGlobal(cluster);
    expect(await nodesOf(cluster)).toEqual(['node-1', 'node-2', 'node-3']);
    expect((await readWeb(cluster)).status).toMatchObject({
      phase: Phase.RUNNING,
      desiredReplicas: 3,
      readyReplicas: 3,
      totalReplicas: 3,
      reason: '',
    });
    await cluster.addNode('node-4');
    await cluster.advance(1_000);
    expect(await nodesOf(cluster)).toEqual(['node-1', 'node-2', 'node-3', 'node-4']);
    expect((await readWeb(cluster)).status).toMatchObject({
      desiredReplicas: 4,
      readyReplicas: 4,
      phase: Phase.RUNNING,
    });
  });

  it('may be created before any node fits', async () => {
    const cluster = await startCluster(1);
    await createGlobal(cluster, { placement: { nodeSelector: { disk: 'ssd' } } });
    expect((await readWeb(cluster)).status).toMatchObject({
      desiredReplicas: 0,
      totalReplicas: 0,
      reason: 'no node fits',
    });
  });

  it('adds or stops the replica of a node when the labels of the node begin or cease to match', async () => {
    const cluster = await startCluster(3);
    await createGlobal(cluster, { placement: { nodeSelector: { disk: 'ssd' } } });
    await changeNode(cluster, 'node-1', { setLabels: { disk: 'ssd' } });
    await changeNode(cluster, 'node-3', { setLabels: { disk: 'ssd' } });
    await cluster.advance(1_000);
    expect(await nodesOf(cluster)).toEqual(['node-1', 'node-3']);
    await changeNode(cluster, 'node-1', { removeLabels: ['disk'] });
    await cluster.advance(1_000);
    expect(await nodesOf(cluster)).toEqual(['node-3']);
    expect((await readWeb(cluster)).status).toMatchObject({ desiredReplicas: 1, totalReplicas: 1 });
  });

  it('leaves a node with a NO_EXECUTE taint and stays on a node with a NO_SCHEDULE taint', async () => {
    const cluster = await startCluster(3);
    await createGlobal(cluster);
    const kept = await idOn(cluster, 'node-2');
    await changeNode(cluster, 'node-1', {
      setTaints: [{ key: 'spot', effect: Effect.NO_EXECUTE }],
    });
    await changeNode(cluster, 'node-2', {
      setTaints: [{ key: 'busy', effect: Effect.NO_SCHEDULE }],
    });
    await cluster.advance(3_000);
    expect(await nodesOf(cluster)).toEqual(['node-2', 'node-3']);
    expect(await idOn(cluster, 'node-2')).toBe(kept);
  });

  it('stays for its toleration time under a NO_EXECUTE taint and does not return meanwhile', async () => {
    const cluster = await startCluster(2);
    const period = { key: 'spot', effect: Effect.NO_EXECUTE, tolerationPeriod: { seconds: 20n } };
    await createGlobal(cluster, { placement: { tolerations: [period] } });
    const kept = await idOn(cluster, 'node-1');
    await changeNode(cluster, 'node-1', {
      setTaints: [{ key: 'spot', effect: Effect.NO_EXECUTE }],
    });
    await cluster.advance(18_000, 100);
    expect(await idOn(cluster, 'node-1')).toBe(kept);
    await cluster.advance(4_000);
    expect(await nodesOf(cluster)).toEqual(['node-2']);
    await cluster.advance(60_000, 100);
    expect(await nodesOf(cluster)).toEqual(['node-2']);
    await changeNode(cluster, 'node-1', { removeTaints: ['spot'] });
    await cluster.advance(3_000);
    expect(await nodesOf(cluster)).toEqual(['node-1', 'node-2']);
  });

  it('keeps its replica when a node is cordoned, and replaces it after a failure only once the node is uncordoned', async () => {
    const cluster = await startCluster(2);
    await createGlobal(cluster);
    const kept = await idOn(cluster, 'node-1');
    await cluster.complete(() => cluster.client.cordonNode({ nodeId: 'node-1' }));
    await cluster.advance(3_000);
    expect(await idOn(cluster, 'node-1')).toBe(kept);
    const agent = cluster.agents.get('node-1')!;
    agent.change(kept!, { phase: ReplicaPhase.FAILED, ready: false, reason: 'exit code 1' });
    await cluster.advance(3_000);
    expect(await nodesOf(cluster)).toEqual(['node-2']);
    expect((await readWeb(cluster)).status).toMatchObject({ desiredReplicas: 1, readyReplicas: 1 });
    await cluster.complete(() => cluster.client.uncordonNode({ nodeId: 'node-1' }));
    await cluster.advance(3_000);
    expect(await nodesOf(cluster)).toEqual(['node-1', 'node-2']);
  });

  it('keeps the last available replica on a draining node until a replica of an older version on a cordoned node is available', async () => {
    const cluster = await startCluster(2);
    await createGlobal(cluster);
    await cluster.advance(3_000);
    const agent = cluster.agents.get('node-1')!;
    const old = await idOn(cluster, 'node-1');
    await cluster.complete(() => cluster.client.cordonNode({ nodeId: 'node-1' }));
    agent.change(old!, { ready: false, reason: 'not listening' });
    await update(cluster, { env: { COLOUR: 'green' } });
    await cluster.advance(10_000);
    await cluster.complete(() => cluster.client.drainNode({ nodeId: 'node-2' }));
    await cluster.advance(30_000, 100);
    expect(await nodesOf(cluster)).toEqual(['node-1', 'node-2']);
    expect((await readWeb(cluster)).status?.rollout?.reason).toMatch(
      /min_available allows no stop: not all replicas on node-1 are available.*Uncordon the nodes, or lower min_available/,
    );
    agent.change(old!, { ready: true, reason: '' });
    await cluster.advance(5_000);
    expect(await nodesOf(cluster)).toEqual(['node-1']);
  });

  it('leaves a drained node without a replacement elsewhere', async () => {
    const cluster = await startCluster(3);
    await createGlobal(cluster);
    const [first, third] = [await idOn(cluster, 'node-1'), await idOn(cluster, 'node-3')];
    await cluster.complete(() => cluster.client.drainNode({ nodeId: 'node-2' }));
    await cluster.advance(3_000);
    expect(await nodesOf(cluster)).toEqual(['node-1', 'node-3']);
    expect([await idOn(cluster, 'node-1'), await idOn(cluster, 'node-3')]).toEqual([first, third]);
    expect((await readWeb(cluster)).status).toMatchObject({
      desiredReplicas: 2,
      totalReplicas: 2,
      phase: Phase.RUNNING,
    });
    await cluster.complete(() => cluster.client.uncordonNode({ nodeId: 'node-2' }));
    await cluster.advance(3_000);
    expect(await nodesOf(cluster)).toEqual(['node-1', 'node-2', 'node-3']);
  });

  it('wants one replica less while a node is lost, and one replica on the node when it returns', async () => {
    const cluster = await startCluster(4);
    await createGlobal(cluster);
    const agent = cluster.agents.get('node-2')!;
    agent.disconnect();
    await cluster.advance(1_000);
    // The node is silent, not lost.
    expect((await readWeb(cluster)).status).toMatchObject({ desiredReplicas: 4 });
    await cluster.advance(5_000);
    expect(await nodesOf(cluster)).toEqual(['node-1', 'node-3', 'node-4']);
    expect((await readWeb(cluster)).status).toMatchObject({
      desiredReplicas: 3,
      readyReplicas: 3,
      phase: Phase.RUNNING,
    });
    await cluster.reconnect('node-2');
    await cluster.advance(5_000);
    expect(await nodesOf(cluster)).toEqual(['node-1', 'node-2', 'node-3', 'node-4']);
    expect(agent.replicas.size).toBe(1);
  });

  it('waits for capacity on its node with a reason and uses no other node', async () => {
    const cluster = await startCluster(1);
    await cluster.addNode('node-2', {
      capacity: { cpuMillis: 150, memoryBytes: 8n * 1024n ** 3n },
    }); // capacity for one replica
    const spec = {
      command: ['fill'],
      resources: { requests: { cpuMillis: 4_000 } },
      placement: { nodeSelector: { big: 'yes' } },
    };
    await changeNode(cluster, 'node-1', { setLabels: { big: 'yes' } });
    await cluster.complete(() => cluster.client.createWorkload({ name: 'fill', spec }));
    await cluster.advance(500);
    await createGlobal(cluster);
    const { status } = await readWeb(cluster);
    expect(status).toMatchObject({
      phase: Phase.SCHEDULING,
      desiredReplicas: 2,
      readyReplicas: 1,
      reason: '1 of 2 replicas without a node: node node-1 does not fit: needs 100m CPU, 0 free',
    });
    const explained = await cluster.complete(() => cluster.client.explainWorkload({ name: 'web' }));
    expect(explained.summary).toContain(
      '1 of 2 replicas are ready; 1 of 2 nodes run their replica or would take it',
    );
    const verdicts = Object.fromEntries(
      explained.nodes.map(({ nodeId, fits, reason }) => [nodeId, fits ? 'fits' : reason]),
    );
    expect(verdicts).toEqual({ 'node-1': 'needs 100m CPU, 0 free', 'node-2': 'fits' });
    await cluster.complete(() => cluster.client.deleteWorkload({ name: 'fill' }));
    await cluster.advance(5_000);
    expect((await readWeb(cluster)).status).toMatchObject({ readyReplicas: 2 });
  });

  it('delays new replicas on the node where they fail, and on no other node', async () => {
    const cluster = await startCluster(3);
    const failing = cluster.agents.get('node-2')!;
    failing.onStart = 'fails';
    await createGlobal(cluster);
    await cluster.advance(10_000);
    const before = failing.started.length;
    expect(before).toBeLessThan(8);
    await changeNode(cluster, 'node-1', {
      setTaints: [{ key: 'spot', effect: Effect.NO_EXECUTE }],
    });
    await cluster.advance(500);
    await changeNode(cluster, 'node-1', { removeTaints: ['spot'] });
    await cluster.advance(200);
    await cluster.addNode('node-0');
    await cluster.advance(300);
    expect(await nodesOf(cluster)).toEqual(['node-0', 'node-1', 'node-3']);
    expect(failing.started.length).toBeLessThanOrEqual(before + 1);
  });

  it('runs on every node of a large cluster', async () => {
    const cluster = await startCluster(120);
    await createGlobal(cluster);
    expect(await nodesOf(cluster)).toEqual([...cluster.agents.keys()].sort());
  });

  it('stops its replicas on all nodes when it is deleted', async () => {
    const cluster = await startCluster(2);
    await createGlobal(cluster);
    await cluster.complete(() => cluster.client.deleteWorkload({ name: 'web' }));
    await cluster.advance(3_000);
    await expect(readWeb(cluster)).rejects.toThrow('workload "default/web" not found');
    expect([...cluster.agents.values()].map(({ replicas }) => replicas.size)).toEqual([0, 0]);
  });

  it('keeps its replicas across a coordinator restart', async () => {
    const cluster = await startCluster(3);
    await createGlobal(cluster);
    const before = await readWeb(cluster);
    await cluster.restartCoordinator();
    await cluster.advance(500);
    for (const nodeId of cluster.agents.keys()) await cluster.reconnect(nodeId);
    await cluster.advance(5_000);
    expect((await readWeb(cluster)).status?.replicas.map(({ id }) => id)).toEqual(
      before.status?.replicas.map(({ id }) => id),
    );
  });
});

describe('update of a GLOBAL workload', () => {
  const limits = { rollout: { maxSurge: 0, maxUnavailable: 1, minAvailable: 3 } };

  /** Returns the lowest ready and highest total count while time passes. */
  async function observeCounts(
    cluster: TestCluster,
    durationMs: number,
  ): Promise<{ lowest: number; highest: number }> {
    const seen = { lowest: Number.POSITIVE_INFINITY, highest: 0 };
    for (let passed = 0; passed < durationMs; passed += 50) {
      await cluster.advance(50);
      const { status } = await readWeb(cluster);
      seen.lowest = Math.min(seen.lowest, status?.readyReplicas ?? 0);
      seen.highest = Math.max(seen.highest, status?.totalReplicas ?? 0);
    }
    return seen;
  }

  it('keeps min_available over all nodes and ends with one new replica per node', async () => {
    const cluster = await startCluster(4);
    await createGlobal(cluster, { rollout: { minAvailable: 4 } });
    await update(cluster, { env: { COLOUR: 'green' } });
    expect(await observeCounts(cluster, 20_000)).toEqual({ lowest: 4, highest: 5 });
    const after = await readWeb(cluster);
    expect(after.status).toMatchObject({
      updatedReplicas: 4,
      readyReplicas: 4,
      totalReplicas: 4,
      phase: Phase.RUNNING,
      version: 2,
    });
    expect(await nodesOf(cluster)).toEqual(['node-1', 'node-2', 'node-3', 'node-4']);
  });

  it('stops first on each node when max_surge is 0', async () => {
    const cluster = await startCluster(4);
    await createGlobal(cluster, limits);
    await update(cluster, { env: { COLOUR: 'green' } });
    const { lowest, highest } = await observeCounts(cluster, 25_000);
    expect(lowest).toBeGreaterThanOrEqual(3);
    expect(highest).toBe(4);
    expect((await readWeb(cluster)).status).toMatchObject({
      updatedReplicas: 4,
      readyReplicas: 4,
      phase: Phase.RUNNING,
    });
  });

  it('never exceeds one replica per node under RECREATE, and ends with a new replica on each node', async () => {
    const cluster = await startCluster(3);
    await createGlobal(cluster, { rollout: { strategy: Strategy.RECREATE } });
    await update(cluster, { env: { COLOUR: 'green' } });
    expect(await observeCounts(cluster, 10_000)).toMatchObject({ highest: 3 });
    expect((await readWeb(cluster)).status).toMatchObject({
      updatedReplicas: 3,
      readyReplicas: 3,
      phase: Phase.RUNNING,
    });
  });

  it.each([
    { name: 'with a surge', rollout: {} },
    { name: 'without a surge', rollout: { maxSurge: 0, maxUnavailable: 1 } },
  ])(
    'skips a cordoned node, whose replica stays, and updates it after the uncordon: $name',
    async ({ rollout }) => {
      const cluster = await startCluster(3);
      await createGlobal(cluster, { rollout });
      const kept = await idOn(cluster, 'node-2');
      await cluster.complete(() => cluster.client.cordonNode({ nodeId: 'node-2' }));
      await update(cluster, { env: { COLOUR: 'green' } });
      expect((await observeCounts(cluster, 15_000)).lowest).toBeGreaterThanOrEqual(2);
      expect(await idOn(cluster, 'node-2')).toBe(kept);
      expect((await readWeb(cluster)).status).toMatchObject({
        desiredReplicas: 3,
        readyReplicas: 3,
        updatedReplicas: 2,
        reason: '1 replica stays at another version as its node takes nothing new: node-2',
      });
      await cluster.complete(() => cluster.client.uncordonNode({ nodeId: 'node-2' }));
      await cluster.advance(10_000);
      expect((await readWeb(cluster)).status).toMatchObject({
        updatedReplicas: 3,
        readyReplicas: 3,
        phase: Phase.RUNNING,
        reason: '',
      });
    },
  );

  it('completes when a node joins, another is drained and a third is lost meanwhile', async () => {
    const cluster = await startCluster(5);
    await createGlobal(cluster);
    await update(cluster, { env: { COLOUR: 'green' } });
    await cluster.advance(2_000);
    await cluster.addNode('node-6');
    await cluster.complete(() => cluster.client.drainNode({ nodeId: 'node-1' }));
    cluster.agents.get('node-2')!.sendsPings = false;
    await cluster.advance(30_000, 50);
    expect(await nodesOf(cluster)).toEqual(['node-3', 'node-4', 'node-5', 'node-6']);
    expect((await readWeb(cluster)).status).toMatchObject({
      desiredReplicas: 4,
      updatedReplicas: 4,
      readyReplicas: 4,
    });
  });

  it('is planned with one placement per node, and a reason for each node without capacity', async () => {
    const cluster = await startCluster(2);
    const spec = { command: ['serve'], mode: Mode.GLOBAL };
    const plan = await cluster.complete(() => cluster.client.planWorkload({ name: 'web', spec }));
    expect(plan.placements.map(({ nodeId }) => nodeId).sort()).toEqual(['node-1', 'node-2']);
    expect(plan).toMatchObject({ unplaced: 0, warnings: [] });
    await cluster.addNode('node-3', { capacity: { cpuMillis: 50, memoryBytes: 8n * 1024n ** 3n } });
    const crowded = await cluster.complete(() =>
      cluster.client.planWorkload({ name: 'web', spec }),
    );
    expect(crowded).toMatchObject({
      unplaced: 1,
      unplacedReason: 'node node-3 does not fit: needs 100m CPU, the node has 50m',
    });
    expect(crowded.placements).toHaveLength(2);
    expect((await cluster.complete(() => cluster.client.listWorkloads({}))).workloads).toEqual([]);
  });
});

describe('GLOBAL job', () => {
  const once = { restart: { policy: Restart.NEVER } };
  const startsOf = (cluster: TestCluster): Record<string, number> =>
    Object.fromEntries(
      [...cluster.agents.values()].map(({ nodeId, started }) => [nodeId, started.length]),
    );

  it('runs once on each node, also on one that joins later, and not again after a drain or a loss', async () => {
    const cluster = await startCluster(3);
    for (const agent of cluster.agents.values()) agent.onStart = 'succeeds';
    await createGlobal(cluster, once);
    expect((await readWeb(cluster)).status).toMatchObject({
      phase: Phase.SUCCEEDED,
      succeededReplicas: 3,
      desiredReplicas: 3,
    });
    await cluster.complete(() => cluster.client.drainNode({ nodeId: 'node-1' }));
    cluster.agents.get('node-2')!.disconnect();
    await cluster.advance(6_000);
    await cluster.complete(() => cluster.client.uncordonNode({ nodeId: 'node-1' }));
    await cluster.reconnect('node-2');
    await cluster.advance(3_000);
    expect(startsOf(cluster)).toEqual({ 'node-1': 1, 'node-2': 1, 'node-3': 1 });
    const joined = await cluster.addNode('node-4');
    await cluster.advance(500);
    for (const id of joined.replicas.keys())
      joined.change(id, { phase: ReplicaPhase.SUCCEEDED, ready: false });
    await cluster.advance(3_000);
    expect(startsOf(cluster)).toEqual({ 'node-1': 1, 'node-2': 1, 'node-3': 1, 'node-4': 1 });
    expect((await readWeb(cluster)).status).toMatchObject({
      phase: Phase.SUCCEEDED,
      succeededReplicas: 4,
      desiredReplicas: 4,
    });
  });

  it('runs once more on each node when an update makes a new version', async () => {
    const cluster = await startCluster(2);
    for (const agent of cluster.agents.values()) agent.onStart = 'succeeds';
    await createGlobal(cluster, once);
    await update(cluster, { env: { COLOUR: 'green' } });
    await cluster.advance(5_000);
    expect(startsOf(cluster)).toEqual({ 'node-1': 2, 'node-2': 2 });
    expect((await readWeb(cluster)).status).toMatchObject({
      phase: Phase.SUCCEEDED,
      succeededReplicas: 2,
      version: 2,
    });
  });
});

/** Performs one random action on one of six nodes, or an update. */
async function performRandomAction(
  cluster: TestCluster,
  random: Random,
  version: number,
): Promise<void> {
  const nodeId = `node-${1 + Math.floor(random.next() * 6)}`;
  const agent = cluster.agents.get(nodeId)!;
  const taint = {
    key: 'spot',
    effect: random.next() < 0.5 ? Effect.NO_EXECUTE : Effect.NO_SCHEDULE,
  };
  const calls: readonly (() => Promise<unknown>)[] = [
    () => cluster.client.cordonNode({ nodeId }),
    () => cluster.client.uncordonNode({ nodeId }),
    () => cluster.client.drainNode({ nodeId }),
    () => cluster.client.uncordonNode({ nodeId }),
    () =>
      cluster.client.updateNode({
        nodeId,
        setLabels: { disk: random.next() < 0.7 ? 'ssd' : 'hdd' },
      }),
    () => cluster.client.updateNode({ nodeId, setTaints: [taint] }),
    () => cluster.client.updateNode({ nodeId, removeTaints: ['spot'] }),
    () =>
      cluster.client.updateWorkload({ name: 'web', spec: { env: { VERSION: String(version) } } }),
  ];
  const chosen = Math.floor(random.next() * (calls.length + 2));
  const call = calls[chosen];
  if (call !== undefined) await cluster.complete(call);
  else if (chosen === calls.length) agent.disconnect();
  else if (!agent.isConnected) await cluster.reconnect(nodeId);
}

describe('GLOBAL workload in a random world', () => {
  it.each(Array.from({ length: 12 }, (_, index) => index + 1))(
    'ends with one replica per fitting node and never has more than two per node, seed %i',
    async (seed) => {
      const random = createSeededRandom(seed);
      const cluster = await startCluster(6);
      for (const nodeId of cluster.agents.keys())
        await changeNode(cluster, nodeId, { setLabels: { disk: 'ssd' } });
      const rollout = random.next() < 0.5 ? {} : { maxSurge: 0, maxUnavailable: 2 };
      await createGlobal(cluster, { placement: { nodeSelector: { disk: 'ssd' } }, rollout });
      for (let step = 0; step < 30; step += 1) {
        await performRandomAction(cluster, random, step);
        await cluster.advance(Math.floor(random.next() * 3_000), 50);
        const nodes = await nodesOf(cluster);
        for (const nodeId of new Set(nodes))
          expect(nodes.filter((id) => id === nodeId).length).toBeLessThanOrEqual(2);
      }
      for (const [nodeId, agent] of cluster.agents) {
        if (!agent.isConnected) await cluster.reconnect(nodeId);
        await cluster.complete(() => cluster.client.uncordonNode({ nodeId }));
        await changeNode(cluster, nodeId, {
          removeTaints: ['spot'],
          setLabels: { disk: nodeId < 'node-4' ? 'ssd' : 'hdd' },
        });
      }
      await cluster.advance(700_000, 1_000); // longer than a quarantine
      expect(await nodesOf(cluster)).toEqual(['node-1', 'node-2', 'node-3']);
      const { status } = await readWeb(cluster);
      expect(status).toMatchObject({
        desiredReplicas: 3,
        readyReplicas: 3,
        updatedReplicas: 3,
        totalReplicas: 3,
        reason: '',
      });
    },
  );
});

describe('validation of GLOBAL workloads', () => {
  it('rejects a replica count at creation and by scaling', async () => {
    const cluster = await startCluster(1);
    const spec = { command: ['serve'], mode: Mode.GLOBAL };
    const text = 'is not allowed with GLOBAL, which runs one replica on each matching node';
    const withCount = { name: 'web', spec: { ...spec, replicas: 3 } };
    await expect(cluster.complete(() => cluster.client.createWorkload(withCount))).rejects.toThrow(
      `spec.replicas: ${text}`,
    );
    await createGlobal(cluster);
    const scaled = cluster.complete(() =>
      cluster.client.scaleWorkload({ name: 'web', replicas: 2 }),
    );
    await expect(scaled).rejects.toThrow(`replicas: ${text}`);
  });

  it('rejects a change of the mode of an existing workload, also in a plan', async () => {
    const cluster = await startCluster(1);
    await createGlobal(cluster);
    const request = {
      name: 'web',
      spec: { mode: Mode.REPLICATED },
      updateMask: { paths: ['mode'] },
    };
    const text = 'spec.mode: cannot change from GLOBAL to REPLICATED';
    await expect(cluster.complete(() => cluster.client.updateWorkload(request))).rejects.toThrow(
      text,
    );
    await expect(cluster.complete(() => cluster.client.planWorkload(request))).rejects.toThrow(
      text,
    );
  });
});
