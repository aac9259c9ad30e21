import type { TestCluster } from './index.js';
import { clusterOf, createWeb, readWeb } from './support.js';

/** What the events say of one node's losses and returns, oldest first. */
function lossesAndReturns(cluster: TestCluster, nodeId: string): string[] {
  const reasons = ['NodeLost', 'NodeReturned', 'ReplicasLost'];
  return [...cluster.state.view().events()]
    .filter((event) => event.nodeId === nodeId && reasons.includes(event.reason))
    .map(({ reason }) => reason);
}

/** The agent goes silent until its lease ends, and comes back with what it runs. */
async function loseAndReturn(cluster: TestCluster, nodeId: string): Promise<void> {
  const agent = cluster.agents.get(nodeId)!;
  agent.isHeard = false;
  await cluster.advance(5_000);
  agent.isHeard = true;
  await cluster.reconnect(nodeId);
  await cluster.advance(2_000);
}

describe('the return of a lost node', () => {
  it.each([0, 1, 20, 90, 500])(
    'emits no second NodeLost when a commit takes %i ms',
    async (delayMs) => {
      let commitDelayMs = 0;
      const cluster = await clusterOf(3, { commitDelayMs: () => commitDelayMs });
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

  it('emits no second NodeLost when the agent has heartbeats in the place of a session', async () => {
    let commitDelayMs = 0;
    const cluster = await clusterOf(2, { commitDelayMs: () => commitDelayMs });
    const agent = cluster.agents.get('node-1')!;
    agent.isHeard = false;
    await cluster.advance(5_000);
    commitDelayMs = 50;
    const { value: node } = cluster.state.view().node('node-1')!;
    const heartbeat = { hello: node.hello!, inventory: { replicas: [], last: true } };
    await cluster.until(() =>
      Promise.all([cluster.client.heartbeat(heartbeat), cluster.client.heartbeat(heartbeat)]),
    );
    expect(lossesAndReturns(cluster, 'node-1')).toEqual(['NodeLost', 'NodeReturned']);
    await cluster.advance(500);
    expect(lossesAndReturns(cluster, 'node-1')).toEqual(['NodeLost', 'NodeReturned']);
  });

  it('keeps the replicas that wait for their node when commits are slow', async () => {
    let commitDelayMs = 0;
    const cluster = await clusterOf(3, { commitDelayMs: () => commitDelayMs });
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

  it('makes void a loss that was decided before and is committed after', async () => {
    let delays: number[] = [];
    const cluster = await clusterOf(3, { commitDelayMs: () => delays.shift() ?? 0 });
    const agent = cluster.agents.get('node-1')!;
    agent.isHeard = false;
    await cluster.advance(2_500);
    delays = [1_000]; // the next commit is the loss
    await cluster.advance(1_000);
    agent.isHeard = true;
    await cluster.reconnect('node-1');
    await cluster.advance(5_000);
    expect(delays).toEqual([]);
    expect(lossesAndReturns(cluster, 'node-1')).toEqual([]);
    expect(cluster.state.view().node('node-1')?.value.lost).toBe(false);
  });
});
