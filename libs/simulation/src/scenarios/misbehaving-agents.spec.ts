import { ReplicaStatus_Phase as Phase, RolloutStatus_Phase as RolloutPhase } from '@cloudless/api';
import { startCluster, createWeb, readWeb } from '../test-cluster/web-workload.js';

describe('agent on a full disk', () => {
  it('gives up a start that it cannot store, and the coordinator places another replica', async () => {
    const cluster = await startCluster(2);
    const agent = cluster.agents.get('node-1')!;
    const other = cluster.agents.get('node-2')!;
    agent.dropsOrders = 100;
    await cluster.complete(() => cluster.client.cordonNode({ nodeId: 'node-2' }));
    await createWeb(cluster, { replicas: 1, rollout: { maxFailedNew: 1 } });
    await cluster.advance(500);
    await cluster.complete(() => cluster.client.uncordonNode({ nodeId: 'node-2' }));
    const [placed] = (await readWeb(cluster)).status!.replicas;
    expect(placed).toMatchObject({ nodeId: 'node-1', ready: false });
    agent.reportDiskFull();
    agent.reportUnacknowledged(placed!.id, {
      phase: Phase.STOPPED,
      reason: 'not started: the disk of the node is full (no space left on device)',
    });
    await cluster.advance(3_000);
    const { status } = await readWeb(cluster);
    expect(status!.replicas).toMatchObject([{ nodeId: 'node-2', ready: true }]);
    expect(status!.rollout).toMatchObject({ phase: RolloutPhase.COMPLETED, failedNew: 0 });
    expect([agent.replicas.size, other.replicas.size]).toEqual([0, 1]);
  });
});

describe('misbehaving agent', () => {
  it('receives an order again until it acknowledges the order', async () => {
    const cluster = await startCluster(1);
    const agent = cluster.agents.get('node-1')!;
    agent.dropsOrders = 2;
    await createWeb(cluster, { replicas: 1 });
    // The coordinator repeats the order after 1 s, and again after 2 s.
    await cluster.advance(1_500);
    expect((await readWeb(cluster)).status?.readyReplicas).toBe(0);
    await cluster.advance(3_000);
    expect((await readWeb(cluster)).status?.readyReplicas).toBe(1);
    expect(agent.started).toHaveLength(1);
  });

  it('is not flooded with stop orders for an orphan that stops slowly', async () => {
    const cluster = await startCluster(1);
    await createWeb(cluster, { replicas: 1 });
    await cluster.advance(500);
    const agent = cluster.agents.get('node-1')!;
    const [real] = agent.replicas.values();
    agent.obeysStops = false;
    agent.disconnect();
    agent.replicas.set('ffffffffffffffff-1', {
      ...real!,
      replicaId: 'ffffffffffffffff-1',
      orderRevision: 1n,
    });
    await cluster.reconnect('node-1');
    const before = agent.acceptedOrders;
    await cluster.advance(5_000);
    expect(agent.replicas.get('ffffffffffffffff-1')?.phase).toBe(Phase.STOPPING);
    expect(agent.acceptedOrders - before).toBeLessThanOrEqual(5);
    agent.change('ffffffffffffffff-1', { phase: Phase.STOPPED });
    await cluster.advance(100);
    expect([...agent.replicas.keys()]).toEqual([real!.replicaId]);
  });

  it('receives the stop order of an orphan again when it was lost', async () => {
    const cluster = await startCluster(1);
    await createWeb(cluster, { replicas: 1 });
    await cluster.advance(500);
    const agent = cluster.agents.get('node-1')!;
    const [real] = agent.replicas.values();
    agent.disconnect();
    agent.replicas.set('ffffffffffffffff-1', {
      ...real!,
      replicaId: 'ffffffffffffffff-1',
      orderRevision: 1n,
    });
    agent.dropsOrders = 1;
    await cluster.reconnect('node-1');
    await cluster.advance(3_000);
    expect([...agent.replicas.keys()]).toEqual([real!.replicaId]);
  });

  it('receives a lost forget order again in the same session, until it has removed the replica', async () => {
    const cluster = await startCluster(1);
    await createWeb(cluster, { replicas: 2 });
    await cluster.advance(500);
    const agent = cluster.agents.get('node-1')!;
    agent.dropsForgets = 3;
    await cluster.complete(() => cluster.client.scaleWorkload({ name: 'web', replicas: 1 }));
    await cluster.advance(2_500);
    expect([...agent.replicas.values()].map(({ phase }) => phase).sort()).toEqual([
      Phase.RUNNING,
      Phase.STOPPED,
    ]);
    await cluster.advance(6_000);
    expect([...agent.replicas.values()].map(({ phase }) => phase)).toEqual([Phase.RUNNING]);
    const { acceptedOrders } = agent;
    await cluster.advance(10_000);
    expect(agent.acceptedOrders).toBe(acceptedOrders);
  });

  it('that lost a replica causes a replacement, not a second start', async () => {
    const cluster = await startCluster(1);
    await createWeb(cluster, { replicas: 2 });
    await cluster.advance(500);
    const agent = cluster.agents.get('node-1')!;
    const [lost] = agent.replicas.keys();
    agent.disconnect();
    agent.replicas.delete(lost!);
    await cluster.reconnect('node-1');
    await cluster.advance(5_000);
    expect(agent.started.filter(({ replicaId }) => replicaId === lost)).toHaveLength(1);
    expect(
      [...agent.replicas.values()].filter(({ phase }) => phase === Phase.RUNNING),
    ).toHaveLength(2);
    expect((await readWeb(cluster)).status?.readyReplicas).toBe(2);
  });

  it('receives a stop order for a replica that runs although its record has ended', async () => {
    const cluster = await startCluster(1);
    await createWeb(cluster, { replicas: 2 });
    await cluster.advance(500);
    const agent = cluster.agents.get('node-1')!;
    const [id, report] = [...agent.replicas][0]!;
    agent.change(id, { phase: Phase.FAILED, ready: false, reason: 'lost by the runtime' });
    await cluster.advance(3_000);
    agent.change(id, { ...report, phase: Phase.RUNNING });
    await cluster.advance(3_000);
    expect(agent.replicas.get(id)?.phase).toBe(Phase.STOPPED);
    expect(
      [...agent.replicas.values()].filter(({ phase }) => phase === Phase.RUNNING),
    ).toHaveLength(2);
    expect(cluster.state.storeRolledBack).toBeUndefined();
  });

  it('receives a stop order for a replica that belongs to another node, which keeps running there', async () => {
    const cluster = await startCluster(2);
    await createWeb(cluster, { replicas: 2 });
    await cluster.advance(500);
    const [first, second] = [cluster.agents.get('node-1')!, cluster.agents.get('node-2')!];
    const [foreign] = second.replicas.values();
    first.disconnect();
    first.replicas.set(foreign!.replicaId, { ...foreign!, orderRevision: 1n });
    await cluster.reconnect('node-1');
    await cluster.advance(3_000);
    expect([...first.replicas.keys()]).not.toContain(foreign!.replicaId);
    expect(second.replicas.get(foreign!.replicaId)).toMatchObject({
      phase: Phase.RUNNING,
      ready: true,
    });
    expect((await readWeb(cluster)).status?.readyReplicas).toBe(2);
  });

  it('that stops a replica without an order causes replacements with growing delay', async () => {
    const cluster = await startCluster(1);
    const agent = cluster.agents.get('node-1')!;
    agent.onStart = 'stops';
    await createWeb(cluster, { replicas: 1 });
    await cluster.advance(8_000);
    expect(agent.started.length).toBeLessThanOrEqual(5);
    expect(agent.started.length).toBeGreaterThanOrEqual(4);
  });

  it('that reconnects keeps its last failed replica until the record is removed', async () => {
    const cluster = await startCluster(1);
    const agent = cluster.agents.get('node-1')!;
    await createWeb(cluster, { replicas: 1 });
    await cluster.advance(500);
    const [id] = agent.replicas.keys();
    agent.change(id!, { phase: Phase.FAILED, ready: false, reason: 'exit code 7' });
    await cluster.advance(500);
    agent.disconnect();
    await cluster.advance(100);
    await cluster.reconnect('node-1');
    await cluster.advance(500);
    const failed = (await readWeb(cluster)).status?.replicas.filter(
      ({ phase }) => phase === Phase.FAILED,
    );
    expect(failed?.map((replica) => [replica.id, replica.reason])).toEqual([[id, 'exit code 7']]);
    expect(agent.replicas.has(id!)).toBe(true); // The agent keeps the logs as long as the record exists.
  });

  it('that reports 1 000 last lines has the newest ten shown, cut and without control characters', async () => {
    const cluster = await startCluster(1);
    const agent = cluster.agents.get('node-1')!;
    await createWeb(cluster, { replicas: 1 });
    await cluster.advance(500);
    const [id] = agent.replicas.keys();
    const readLastLines = async () =>
      (await readWeb(cluster)).status?.replicas.find((replica) => replica.id === id)?.lastLines;
    const flood = Array.from(
      { length: 1_000 },
      (_, index) => `${index}\u001b[2J${'x'.repeat(1_000)}`,
    );
    agent.change(id!, {
      ready: false,
      restarts: 1,
      lastExitCode: 1,
      lastLines: [...flood, 'no such table'],
    });
    await cluster.advance(500);
    const cut = (index: number): string => `${index}${'x'.repeat(252)}…`;
    expect(await readLastLines()).toEqual(
      [991, 992, 993, 994, 995, 996, 997, 998, 999].map(cut).concat('no such table'),
    );
    agent.change(id!, { ready: true });
    await cluster.advance(500);
    expect((await readLastLines())?.at(-1)).toBe('no such table');
    agent.change(id!, { ready: false, restarts: 2, lastExitCode: 2, lastLines: [] });
    await cluster.advance(500);
    expect(await readLastLines()).toEqual([]);
  });

  it('stays READY when an older session of its node ends after a newer session has begun', async () => {
    const cluster = await startCluster(1);
    await createWeb(cluster);
    await cluster.advance(500);
    const starts = cluster.agents.get('node-1')!.started.length;
    await cluster.reconnect('node-1');
    await cluster.advance(10_000);
    const node = await cluster.complete(() => cluster.client.getNode({ nodeId: 'node-1' }));
    expect(node.status?.conditions[0]?.status).toBe(true);
    expect((await readWeb(cluster)).status?.readyReplicas).toBe(3);
    expect(cluster.agents.get('node-1')!.started).toHaveLength(starts);
  });
});
