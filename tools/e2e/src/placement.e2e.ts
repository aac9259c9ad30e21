import { RealCluster } from './support/cluster.js';

let cluster: RealCluster;
beforeAll(async () => {
  cluster = await RealCluster.start();
});
afterAll(() => cluster.stop());

const sleeper = { command: ['sleep', '1000'], rollout: { minReadyDuration: { seconds: 0n } } };

describe('placement', () => {
  it('puts 2, 2 and 1 of 5 replicas into 3 zones', async () => {
    await cluster.client.createWorkload({ name: 'spread', spec: { ...sleeper, replicas: 5 } });
    const { status } = await cluster.waitUntilSettled('spread');
    const zones = status!.replicas.map(({ zone }) => zone);
    expect(
      ['zone-a', 'zone-b', 'zone-c']
        .map((zone) => zones.filter((other) => other === zone).length)
        .sort(),
    ).toEqual([1, 2, 2]);
  });

  it('keeps a workload for an unknown zone pending, and places it when a node of the zone joins', async () => {
    await cluster.client.createWorkload({
      name: 'zoned',
      spec: { ...sleeper, placement: { zones: ['zone-x'] } },
    });
    const waiting = await cluster.waitForWorkload('zoned', ({ status }) =>
      status!.reason.includes('not in zone'),
    );
    expect(waiting.status!.reason).toBe(
      '1 of 1 replicas without a node: no node fits: not in zone zone-x: 3 of 3 nodes',
    );
    await cluster.startAgent('agent-x', 'zone-x');
    const placed = await cluster.waitUntilSettled('zoned');
    expect(placed.status!.replicas[0]).toMatchObject({ nodeId: 'agent-x', ready: true });
  });

  it('places a pending workload when a node gets the required label', async () => {
    await cluster.client.createWorkload({
      name: 'labelled',
      spec: { ...sleeper, placement: { nodeSelector: { disk: 'ssd' } } },
    });
    await cluster.waitForWorkload('labelled', ({ status }) =>
      status!.reason.includes('lacks the label disk=ssd: 4 of 4 nodes'),
    );
    expect(await cluster.runCtl('node', 'label', 'agent-2', 'disk=ssd')).toMatchObject({ code: 0 });
    expect((await cluster.waitUntilSettled('labelled')).status!.replicas[0]?.nodeId).toBe(
      'agent-2',
    );
  });

  it('keeps an image workload pending with the missing capability when no node runs containers', async () => {
    await cluster.client.createWorkload({
      name: 'image',
      spec: { image: 'nginx:alpine', replicas: 2 },
    });
    const waiting = await cluster.waitForWorkload('image', ({ status }) =>
      status!.reason.includes('container runtime'),
    );
    expect(waiting.status!.reason).toContain('no container runtime: 4 of 4 nodes');
  });

  it('moves the replicas of a node that is drained, and uncordon ends the drain', async () => {
    expect(await cluster.runCtl('node', 'drain', 'agent-1', '--wait')).toMatchObject({ code: 0 });
    const drained = await cluster.client.getNode({ nodeId: 'agent-1' });
    expect(drained).toMatchObject({ draining: true, cordoned: true, status: { replicaCount: 0 } });
    expect(
      (await cluster.waitUntilSettled('spread')).status!.replicas.map(({ nodeId }) => nodeId),
    ).not.toContain('agent-1');
    expect(await cluster.runCtl('node', 'uncordon', 'agent-1')).toMatchObject({ code: 0 });
    expect(await cluster.client.getNode({ nodeId: 'agent-1' })).toMatchObject({
      draining: false,
      cordoned: false,
    });
  });
});
