import { Disconnect_Mode as Mode } from '@cloudless/api';
import type { TestCluster } from '../index.js';
import { startCluster, createWeb, readWeb } from '../test-cluster/web-workload.js';

/** Returns the events about losses and returns of one node, oldest first. */
function lossesAndReturns(cluster: TestCluster, nodeId: string): string[] {
  const reasons = ['NodeLost', 'NodeReturned', 'ReplicasLost'];
  return [...cluster.state.view().events()]
    .filter((event) => event.nodeId === nodeId && reasons.includes(event.reason))
    .map(({ reason }) => reason);
}

/** Silences an agent until its lease has ended, and lets the agent return with its replicas. */
async function loseAndReturn(
  cluster: TestCluster,
  nodeId: string,
  silentMs = 5_000,
): Promise<void> {
  const agent = cluster.agents.get(nodeId)!;
  agent.sendsPings = false;
  await cluster.advance(silentMs);
  agent.sendsPings = true;
  await cluster.reconnect(nodeId);
  await cluster.advance(2_000);
}

describe('return of a lost node', () => {
  it.each([0, 1, 20, 90, 500])(
    'follows each NodeLost event with one NodeReturned event when a commit takes %i ms',
    async (delayMs) => {
      let commitDelayMs = 0;
      const cluster = await startCluster(3, { commitDelayMs: () => commitDelayMs });
      commitDelayMs = delayMs;
      for (let count = 0; count < 2; count += 1) await loseAndReturn(cluster, 'node-1');
      expect(lossesAndReturns(cluster, 'node-1')).toEqual([
        'NodeLost',
        'NodeReturned',
        'NodeLost',
        'NodeReturned',
      ]);
      expect(cluster.state.view().node('node-1')?.value.lost).toBe(false);
    },
  );

  it('records one NodeReturned event when the agent sends two heartbeats without a session', async () => {
    let commitDelayMs = 0;
    const cluster = await startCluster(2, { commitDelayMs: () => commitDelayMs });
    const agent = cluster.agents.get('node-1')!;
    agent.sendsPings = false;
    await cluster.advance(5_000);
    commitDelayMs = 50;
    const { value: node } = cluster.state.view().node('node-1')!;
    const heartbeat = { hello: node.hello!, inventory: { replicas: [], last: true } };
    await cluster.complete(() =>
      Promise.all([cluster.client.heartbeat(heartbeat), cluster.client.heartbeat(heartbeat)]),
    );
    expect(lossesAndReturns(cluster, 'node-1')).toEqual(['NodeLost', 'NodeReturned']);
    await cluster.advance(500);
    expect(lossesAndReturns(cluster, 'node-1')).toEqual(['NodeLost', 'NodeReturned']);
  });

  it.each([
    { name: 'keeps a ready replica whose replacement no node fits', nodes: 1, kept: true },
    { name: 'stops a replica whose replacement has a node', nodes: 2, kept: false },
    {
      name: 'replaces an EXCLUSIVE replica although no other node fits',
      nodes: 1,
      disconnect: { mode: Mode.EXCLUSIVE, stopAfter: { seconds: 3n }, lostAfter: { seconds: 6n } },
      kept: false,
    },
  ])('$name', async ({ nodes, disconnect, kept }) => {
    const capabilities = ['runtime.process', 'disconnect.exclusive'];
    const cluster = await startCluster(nodes, {}, { capabilities });
    await createWeb(cluster, { replicas: 1, ...(disconnect === undefined ? {} : { disconnect }) });
    await cluster.advance(2_000);
    const [before] = (await readWeb(cluster)).status?.replicas ?? [];
    await loseAndReturn(cluster, before?.nodeId ?? '', 10_000);
    await cluster.advance(20_000, 100);
    const { status } = await readWeb(cluster);
    expect(status?.readyReplicas).toBe(1);
    expect(status?.replicas.some(({ id }) => id === before?.id)).toBe(kept);
    const events = [...cluster.state.view().events()].map(({ reason }) => reason);
    expect(events.filter((reason) => reason === 'ReplicasTakenBack')).toHaveLength(kept ? 1 : 0);
  });

  it.each([0, 500])(
    'keeps 60 ready replicas whose replacements no node fits when a commit takes %i ms',
    async (delayMs) => {
      let commitDelayMs = 0;
      const cluster = await startCluster(1, { commitDelayMs: () => commitDelayMs });
      await createWeb(cluster, { replicas: 60, resources: { requests: { cpuMillis: 10 } } });
      await cluster.advance(10_000, 100);
      const before = (await readWeb(cluster)).status?.replicas.map(({ id }) => id);
      const agent = cluster.agents.get('node-1')!;
      agent.sendsPings = false;
      await cluster.advance(10_000);
      commitDelayMs = delayMs;
      agent.sendsPings = true;
      await cluster.reconnect('node-1');
      await cluster.advance(5_000);
      commitDelayMs = 0;
      await cluster.advance(10_000, 100);
      const { status } = await readWeb(cluster);
      expect(status?.replicas.map(({ id }) => id)).toEqual(before);
      expect(status?.readyReplicas).toBe(60);
      expect(
        [...cluster.state.view().events()]
          .filter(({ reason }) => reason === 'ReplicasTakenBack')
          .map(({ replicaIds }) => replicaIds.length),
      ).toEqual([25, 25, 10]);
      expect(lossesAndReturns(cluster, 'node-1').at(-1)).toBe('NodeReturned');
    },
  );

  it('keeps replicas that wait for their node when commits are slow', async () => {
    let commitDelayMs = 0;
    const cluster = await startCluster(3, { commitDelayMs: () => commitDelayMs });
    await createWeb(cluster, { replicas: 3, disconnect: { lostAfter: { seconds: 60n } } });
    await cluster.advance(1_000);
    const before = (await readWeb(cluster)).status?.replicas.map(({ id }) => id);
    commitDelayMs = 200;
    await loseAndReturn(cluster, 'node-1');
    commitDelayMs = 0;
    await cluster.advance(70_000, 100);
    const { status } = await readWeb(cluster);
    expect(status?.replicas.map(({ id }) => id)).toEqual(before);
    expect(status?.readyReplicas).toBe(3);
    expect(lossesAndReturns(cluster, 'node-1')).toEqual(['NodeLost', 'NodeReturned']);
  });

  it('is not followed by a loss that was decided before the return', async () => {
    let delays: number[] = [];
    const cluster = await startCluster(3, { commitDelayMs: () => delays.shift() ?? 0 });
    const agent = cluster.agents.get('node-1')!;
    agent.sendsPings = false;
    await cluster.advance(2_500);
    delays = [1_000]; // the next commit is the loss
    await cluster.advance(1_000);
    agent.sendsPings = true;
    await cluster.reconnect('node-1');
    await cluster.advance(5_000);
    expect(delays).toEqual([]);
    expect(lossesAndReturns(cluster, 'node-1')).toEqual([]);
    expect(cluster.state.view().node('node-1')?.value.lost).toBe(false);
  });
});
