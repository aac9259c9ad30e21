import { NodeStatus_Phase as NodePhase, ReplicaStatus_Phase as Phase } from '@cloudless/api';
import { startCluster, createWeb, readWeb } from '../test-cluster/web-workload.js';
import type { TestCluster } from '../index.js';

const phaseOf = async (cluster: TestCluster, nodeId: string): Promise<NodePhase | undefined> =>
  (await cluster.complete(() => cluster.client.getNode({ nodeId }))).status?.phase;

describe('node life cycle', () => {
  it('loses a silent node, ends its session, and makes it READY when the agent reconnects', async () => {
    const cluster = await startCluster(3);
    const agent = cluster.agents.get('node-1')!;
    agent.sendsPings = false;
    await cluster.advance(5_000);
    expect(await phaseOf(cluster, 'node-1')).toBe(NodePhase.LOST);
    expect(agent.isConnected).toBe(false); // the agent dials again
    agent.sendsPings = true;
    await cluster.reconnect('node-1');
    await cluster.advance(1_000);
    expect(await phaseOf(cluster, 'node-1')).toBe(NodePhase.READY);
  });

  it('completes replacements after a coordinator restart that follows a loss', async () => {
    const cluster = await startCluster(6);
    await createWeb(cluster, { replicas: 6 });
    await cluster.advance(1_000);
    const silent = ['node-1', 'node-2', 'node-3', 'node-4'];
    for (const nodeId of silent) cluster.agents.get(nodeId)!.sendsPings = false;
    await cluster.advance(4_000);
    expect(cluster.state.view().node('node-1')?.value.lost).toBe(true);
    // Replacement is paused: most nodes fell silent together.
    expect((await readWeb(cluster)).status?.totalReplicas).toBe(6);
    await cluster.restartCoordinator();
    for (const nodeId of ['node-5', 'node-6']) await cluster.reconnect(nodeId);
    await cluster.advance(310_000, 500);
    const { status } = await readWeb(cluster);
    expect(status).toMatchObject({ readyReplicas: 6, totalReplicas: 6 });
    expect(
      new Set(status?.replicas.filter(({ ready }) => ready).map(({ nodeId }) => nodeId)),
    ).toEqual(new Set(['node-5', 'node-6']));
  });

  it('pauses replacement with one event when all nodes fall silent together', async () => {
    const cluster = await startCluster(5);
    await createWeb(cluster, { replicas: 5 });
    await cluster.advance(1_000);
    for (const agent of cluster.agents.values()) agent.sendsPings = false;
    await cluster.advance(20_000, 50);
    const held = cluster.state
      .view()
      .events()
      .filter(({ reason }) => reason === 'ReplacementHeld');
    expect(held.map(({ message }) => message)).toEqual([
      'replacement is paused: 5 of 5 nodes fell silent together',
    ]);
  });

  it('places replicas on a quarantined node when its quarantine has ended', async () => {
    const cluster = await startCluster(1);
    for (let loss = 0; loss < 3; loss += 1) {
      cluster.agents.get('node-1')!.disconnect();
      await cluster.advance(4_000, 100);
      await cluster.reconnect('node-1');
      await cluster.advance(200);
    }
    await createWeb(cluster, { replicas: 1 });
    await cluster.advance(1_000);
    expect((await readWeb(cluster)).status?.reason).toContain('quarantined');
    await cluster.advance(600_000, 1_000);
    expect((await readWeb(cluster)).status?.readyReplicas).toBe(1);
  });

  it('rejects an agent with a negative capacity, and places replicas on other nodes', async () => {
    const cluster = await startCluster(1);
    const rejected = cluster.addNode('node-x', { capacity: { cpuMillis: -1, memoryBytes: 1n } });
    await expect(rejected).rejects.toThrow('capacity.cpu_millis');
    await createWeb(cluster);
    await cluster.advance(500);
    expect((await readWeb(cluster)).status?.readyReplicas).toBe(3);
  });

  it('keeps min_available while two nodes are drained', async () => {
    const cluster = await startCluster(4);
    await createWeb(cluster, { replicas: 8, rollout: { minAvailable: 8 } });
    await cluster.advance(1_000);
    for (const nodeId of ['node-1', 'node-2'])
      await cluster.complete(() => cluster.client.drainNode({ nodeId }));
    let lowest = 8;
    for (let step = 0; step < 300; step += 1) {
      await cluster.advance(10);
      lowest = Math.min(lowest, (await readWeb(cluster)).status?.readyReplicas ?? 0);
    }
    expect(lowest).toBe(8);
    expect(new Set((await readWeb(cluster)).status?.replicas.map(({ nodeId }) => nodeId))).toEqual(
      new Set(['node-3', 'node-4']),
    );
  });

  it('writes the reports of a returned agent before it decides a voluntary stop', async () => {
    const cluster = await startCluster(2);
    await createWeb(cluster, { replicas: 2, rollout: { minAvailable: 1 } });
    await cluster.advance(1_000);
    const agent = [...cluster.agents.values()].find(({ nodeId }) => nodeId === 'node-1')!;
    agent.disconnect();
    await cluster.advance(500);
    for (const [id, report] of agent.replicas)
      agent.replicas.set(id, { ...report, ready: false, reason: 'hangs' });
    await cluster.complete(() => cluster.client.scaleWorkload({ name: 'web', replicas: 1 }));
    await cluster.advance(500);
    await cluster.reconnect('node-1');
    await cluster.advance(500);
    const { status } = await readWeb(cluster);
    expect(
      status?.replicas
        .filter(({ phase }) => phase === Phase.RUNNING)
        .map(({ nodeId, ready }) => [nodeId, ready]),
    ).toEqual([['node-2', true]]);
  });
});
