import {
  ReplicaStatus_Phase as ReplicaPhase,
  RestartPolicy_Policy as Restart,
  WorkloadStatus_Phase as Phase,
  type Workload,
} from '@cloudless/api';
import { TestCluster } from '../index.js';

async function startThreeZones(): Promise<TestCluster> {
  const cluster = await TestCluster.start();
  for (const zone of ['a', 'b', 'c'])
    await cluster.addNode(`node-${zone}`, { zone: `zone-${zone}` });
  return cluster;
}

const read = (cluster: TestCluster, name = 'web'): Promise<Workload> =>
  cluster.complete(() => cluster.client.getWorkload({ name }));
const createWeb = (cluster: TestCluster, spec: object = {}): Promise<Workload> =>
  cluster.complete(() =>
    cluster.client.createWorkload({
      name: 'web',
      spec: { command: ['serve'], replicas: 3, ...spec },
    }),
  );
const idsOf = ({ status }: Workload): string[] =>
  (status?.replicas ?? []).filter(({ leaving }) => !leaving).map(({ id }) => id);

function zonesOf({ status }: Workload): number[] {
  const counts: Record<string, number> = {};
  for (const { zone } of status?.replicas ?? []) counts[zone] = (counts[zone] ?? 0) + 1;
  return Object.values(counts).sort();
}

describe('life cycle of a workload', () => {
  it('is created, spread over the zones, and becomes RUNNING', async () => {
    const cluster = await startThreeZones();
    await createWeb(cluster, { replicas: 5 });
    await cluster.advance(200);
    const workload = await read(cluster);
    expect(workload.status).toMatchObject({
      phase: Phase.RUNNING,
      readyReplicas: 5,
      updatedReplicas: 5,
      reason: '',
      observedGeneration: 1n,
    });
    expect(zonesOf(workload)).toEqual([1, 2, 2]);
  });

  it('scales up and down to exactly the wanted count and keeps its version', async () => {
    const cluster = await startThreeZones();
    await createWeb(cluster);
    await cluster.advance(200);
    await cluster.complete(() => cluster.client.scaleWorkload({ name: 'web', replicas: 6 }));
    await cluster.advance(200);
    expect((await read(cluster)).status).toMatchObject({ readyReplicas: 6, version: 1 });
    await cluster.complete(() => cluster.client.scaleWorkload({ name: 'web', replicas: 0 }));
    await cluster.advance(5_000);
    const empty = await read(cluster);
    expect(empty.spec?.replicas).toBe(0);
    expect(empty.status).toMatchObject({
      totalReplicas: 0,
      phase: Phase.RUNNING,
      version: 1,
      observedGeneration: 3n,
    });
    expect(cluster.agents.get('node-a')?.replicas.size).toBe(0);
  });

  it('rolls out a new version within min_available and the ceiling', async () => {
    const cluster = await startThreeZones();
    await createWeb(cluster, { replicas: 5 });
    await cluster.advance(3_000);
    const before = idsOf(await read(cluster));
    await cluster.complete(() =>
      cluster.client.updateWorkload({ name: 'web', spec: { env: { COLOUR: 'green' } } }),
    );
    let lowest = 5;
    let highest = 0;
    for (let step = 0; step < 300; step += 1) {
      await cluster.advance(100);
      const { status } = await read(cluster);
      lowest = Math.min(lowest, status?.readyReplicas ?? 0);
      highest = Math.max(highest, status?.totalReplicas ?? 0);
    }
    const after = await read(cluster);
    expect({ lowest, highest }).toEqual({ lowest: 5, highest: 6 });
    expect(after.status).toMatchObject({
      version: 2,
      updatedReplicas: 5,
      readyReplicas: 5,
      totalReplicas: 5,
      phase: Phase.RUNNING,
    });
    expect(idsOf(after).filter((id) => before.includes(id))).toEqual([]);
  });

  it('keeps four ready endpoints in an update that follows a scale-up', async () => {
    const cluster = await startThreeZones();
    await createWeb(cluster);
    await cluster.advance(3_000);
    await cluster.complete(() => cluster.client.scaleWorkload({ name: 'web', replicas: 5 }));
    await cluster.advance(100);
    await cluster.complete(() =>
      cluster.client.updateWorkload({ name: 'web', spec: { env: { COLOUR: 'green' } } }),
    );
    let lowest = 5;
    for (let step = 0; step < 300; step += 1) {
      await cluster.advance(50);
      lowest = Math.min(
        lowest,
        (await cluster.complete(() => cluster.client.listEndpoints({ name: 'web' }))).readyReplicas,
      );
    }
    expect(lowest).toBeGreaterThanOrEqual(4);
    expect((await read(cluster)).status).toMatchObject({
      updatedReplicas: 5,
      readyReplicas: 5,
      totalReplicas: 5,
    });
  });

  it('stops no more old replicas when the new version never becomes ready', async () => {
    const cluster = await startThreeZones();
    await createWeb(cluster);
    await cluster.advance(3_000);
    for (const agent of cluster.agents.values()) agent.onStart = 'unready';
    await cluster.complete(() =>
      cluster.client.updateWorkload({ name: 'web', spec: { args: ['broken'] } }),
    );
    await cluster.advance(30_000);
    const { status } = await read(cluster);
    expect(status).toMatchObject({
      phase: Phase.UPDATING,
      minAvailable: 2,
      readyReplicas: 2,
      totalReplicas: 4,
      updatedReplicas: 2,
    });
    expect(status?.reason).toContain('replica ');
    expect(status?.reason).toContain('not listening yet');
    expect(status?.rollout?.reason).toContain('not yet');
  });

  it('replaces a failed replica at once, and later failures with growing delay', async () => {
    const cluster = await startThreeZones();
    const starts: number[] = [];
    for (const agent of cluster.agents.values()) {
      agent.onStart = () => {
        starts.push(cluster.clock.now());
        return 'fails';
      };
    }
    await createWeb(cluster, { replicas: 1 });
    await cluster.advance(8_000);
    const gaps = starts
      .slice(1)
      .map((at, index) => Math.round((at - (starts[index] ?? 0)) / 1_000));
    expect(gaps).toEqual([0, 1, 2, 4]);
    const { status } = await read(cluster);
    expect(status?.reason).toContain('exit code 1');
    expect(status?.replicas.length).toBeLessThanOrEqual(2);
  });

  it('ends SUCCEEDED and counts its succeeded replicas when all replicas succeed with restart policy ON_FAILURE', async () => {
    const cluster = await startThreeZones();
    for (const agent of cluster.agents.values()) agent.onStart = 'succeeds';
    await createWeb(cluster, { restart: { policy: Restart.ON_FAILURE } });
    await cluster.advance(1_000);
    expect((await read(cluster)).status).toMatchObject({
      phase: Phase.SUCCEEDED,
      succeededReplicas: 3,
      totalReplicas: 0,
    });
  });

  it('does not run a failed replica again with restart policy NEVER, and reports the failure', async () => {
    const cluster = await startThreeZones();
    for (const agent of cluster.agents.values()) agent.onStart = 'fails';
    await createWeb(cluster, { replicas: 1, restart: { policy: Restart.NEVER } });
    await cluster.advance(10_000);
    const { status } = await read(cluster);
    expect(status).toMatchObject({ phase: Phase.FAILED, totalReplicas: 0 });
    expect(status?.replicas).toHaveLength(1);
    expect(status?.reason).toContain('exit code 1');
  });

  it('is deleted when every agent has confirmed, and its name is free again', async () => {
    const cluster = await startThreeZones();
    await createWeb(cluster);
    await cluster.advance(200);
    const slowAgent = cluster.agents.get('node-b');
    slowAgent!.obeysStops = false;
    const deleted = await cluster.complete(() => cluster.client.deleteWorkload({ name: 'web' }));
    expect(deleted.status?.phase).toBe(Phase.TERMINATING);
    await cluster.advance(2_000);
    await expect(createWeb(cluster)).rejects.toThrow(
      'workload "default/web" is being deleted; wait until it is gone',
    );
    expect((await read(cluster)).status?.replicas.map(({ nodeId }) => nodeId)).toEqual(['node-b']);
    const [left] = slowAgent!.replicas.keys();
    slowAgent!.change(left!, { phase: ReplicaPhase.STOPPED, ready: false });
    await cluster.advance(200);
    await expect(read(cluster)).rejects.toThrow('workload "default/web" not found');
    await createWeb(cluster);
  });
});

describe('placement of a workload', () => {
  it('waits with a reason, and is made within a second after a fitting node joins', async () => {
    const cluster = await startThreeZones();
    await createWeb(cluster, { placement: { zones: ['zone-x'] } });
    await cluster.advance(100);
    const waiting = await read(cluster);
    expect(waiting.status?.phase).toBe(Phase.PENDING);
    expect(waiting.status?.reason).toBe(
      '3 of 3 replicas without a node: no node fits: not in zone zone-x: 3 of 3 nodes',
    );
    await cluster.addNode('node-x', { zone: 'zone-x' });
    await cluster.advance(1_000);
    expect((await read(cluster)).status?.readyReplicas).toBe(3);
  });

  it('is made within a second after a node gets the required label', async () => {
    const cluster = await startThreeZones();
    await createWeb(cluster, { placement: { nodeSelector: { disk: 'ssd' } } });
    await cluster.advance(100);
    expect((await read(cluster)).status?.reason).toContain(
      'lacks the label disk=ssd: 3 of 3 nodes',
    );
    await cluster.complete(() =>
      cluster.client.updateNode({ nodeId: 'node-b', setLabels: { disk: 'ssd' } }),
    );
    await cluster.advance(1_000);
    expect((await read(cluster)).status?.replicas.map(({ nodeId }) => nodeId)).toEqual([
      'node-b',
      'node-b',
      'node-b',
    ]);
  });

  it('names the capability that no node has', async () => {
    const cluster = await startThreeZones();
    await createWeb(cluster, { command: [], image: 'nginx:alpine' });
    await cluster.advance(100);
    expect((await read(cluster)).status?.reason).toContain('no container runtime: 3 of 3 nodes');
  });

  it('prefers higher priority when capacity is short', async () => {
    const cluster = await TestCluster.start();
    for (const [name, priority] of [
      ['low', 10],
      ['high', 90],
    ] as const) {
      const spec = { command: ['serve'], priority, resources: { requests: { cpuMillis: 3_000 } } };
      await cluster.complete(() => cluster.client.createWorkload({ name, spec }));
    }
    await cluster.advance(50);
    await cluster.addNode('node-a');
    await cluster.advance(500);
    expect((await read(cluster, 'high')).status?.readyReplicas).toBe(1);
    expect((await read(cluster, 'low')).status?.reason).toContain(
      'needs 3 CPU, more than is free: 1 of 1 nodes',
    );
  });
});

describe('node in a cluster', () => {
  it('is lost when its lease ends, and only its replicas are replaced', async () => {
    const cluster = await startThreeZones();
    await createWeb(cluster);
    await cluster.advance(3_000);
    const before = await read(cluster);
    const lostId = before.status?.replicas.find(({ nodeId }) => nodeId === 'node-a')?.id;
    cluster.agents.get('node-a')!.sendsPings = false;
    await cluster.advance(2_500);
    expect(idsOf(await read(cluster)).sort()).toEqual(idsOf(before).sort());
    await cluster.advance(1_000);
    const after = await read(cluster);
    expect(after.status?.readyReplicas).toBe(3);
    const kept = idsOf(after).filter((id) => idsOf(before).includes(id) && id !== lostId);
    expect(kept).toHaveLength(2);
    const node = await cluster.complete(() => cluster.client.getNode({ nodeId: 'node-a' }));
    expect(node.status?.phase).toBe(3);
  });

  it('stops replaced replicas when it returns', async () => {
    const cluster = await startThreeZones();
    await createWeb(cluster);
    await cluster.advance(3_000);
    const agent = cluster.agents.get('node-a')!;
    agent.disconnect();
    await cluster.advance(4_000);
    expect([...agent.replicas.values()].map(({ phase }) => phase)).toEqual([ReplicaPhase.RUNNING]);
    expect((await read(cluster)).status?.readyReplicas).toBe(3);
    await cluster.reconnect('node-a');
    await cluster.advance(1_000);
    expect(agent.replicas.size).toBe(0);
    expect((await read(cluster)).status).toMatchObject({ readyReplicas: 3, totalReplicas: 3 });
    expect((await read(cluster)).status?.replicas).toHaveLength(3);
  });

  it('keeps its replicas when its agent returns within the lease', async () => {
    const cluster = await startThreeZones();
    await createWeb(cluster);
    await cluster.advance(3_000);
    const before = await read(cluster);
    cluster.agents.get('node-a')!.disconnect();
    await cluster.advance(1_500);
    expect(
      (await read(cluster)).status?.replicas.find(({ nodeId }) => nodeId === 'node-a')?.stale,
    ).toBe(true);
    await cluster.reconnect('node-a');
    await cluster.advance(5_000);
    expect(idsOf(await read(cluster))).toEqual(idsOf(before));
  });

  it('is drained within min_available and receives no replicas until it is uncordoned', async () => {
    const cluster = await startThreeZones();
    await createWeb(cluster, { replicas: 3, rollout: { minAvailable: 3 } });
    await cluster.advance(3_000);
    await cluster.complete(() => cluster.client.drainNode({ nodeId: 'node-a' }));
    let lowest = 3;
    for (let step = 0; step < 100; step += 1) {
      await cluster.advance(100);
      lowest = Math.min(lowest, (await read(cluster)).status?.readyReplicas ?? 0);
    }
    expect(lowest).toBe(3);
    const drained = await cluster.complete(() => cluster.client.getNode({ nodeId: 'node-a' }));
    expect(drained).toMatchObject({ cordoned: true, draining: true, status: { replicaCount: 0 } });
    await cluster.complete(() => cluster.client.uncordonNode({ nodeId: 'node-a' }));
    await cluster.complete(() => cluster.client.scaleWorkload({ name: 'web', replicas: 4 }));
    await cluster.advance(500);
    expect((await read(cluster)).status?.replicas.some(({ nodeId }) => nodeId === 'node-a')).toBe(
      true,
    );
  });

  it('stops an orphan that its agent reports, and removes it at the agent', async () => {
    const cluster = await startThreeZones();
    await createWeb(cluster, { replicas: 1 });
    await cluster.advance(200);
    const holder = [...cluster.agents.values()].find(({ replicas }) => replicas.size === 1)!;
    const [real] = holder.replicas.values();
    holder.disconnect();
    holder.replicas.set('ffffffffffffffff-1', {
      ...real!,
      replicaId: 'ffffffffffffffff-1',
      orderRevision: 1n,
    });
    await cluster.advance(200);
    await cluster.reconnect(holder.nodeId);
    await cluster.advance(500);
    expect([...holder.replicas.keys()]).toEqual([real!.replicaId]);
  });
});

describe('restarted coordinator', () => {
  it('keeps all replicas and containers, and starts nothing again', async () => {
    const cluster = await startThreeZones();
    await createWeb(cluster, { replicas: 5 });
    await cluster.advance(3_000);
    const before = await read(cluster);
    const starts = [...cluster.agents.values()].reduce(
      (sum, agent) => sum + agent.started.length,
      0,
    );
    await cluster.stopCoordinator();
    for (const agent of cluster.agents.values()) agent.disconnect();
    await cluster.clock.advance(700);
    await cluster.startCoordinator();
    await cluster.clock.advance(300);
    for (const nodeId of cluster.agents.keys()) await cluster.reconnect(nodeId);
    await cluster.advance(10_000);
    const after = await read(cluster);
    expect(idsOf(after)).toEqual(idsOf(before));
    expect(after.status?.replicas.map(({ containerId }) => containerId)).toEqual(
      before.status?.replicas.map(({ containerId }) => containerId),
    );
    expect([...cluster.agents.values()].reduce((sum, agent) => sum + agent.started.length, 0)).toBe(
      starts,
    );
  });
});
