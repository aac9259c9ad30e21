import { RealCluster } from './cluster.js';
import {
  expectServed,
  liveIds,
  liveReplicas,
  rolledOut,
  underLoad,
  webSpec,
} from './rollout-tools.js';

let cluster: RealCluster;
beforeAll(async () => {
  cluster = await RealCluster.start();
  await cluster.client.createWorkload({
    name: 'web',
    spec: webSpec({ minAvailable: MIN_AVAILABLE, maxSurge: 2 }),
  });
  await rolledOut(cluster, 'web');
});
afterAll(() => cluster.stop());

/** 4 of 4 replicas: an old replica may be stopped only after its replacement is available. */
const MIN_AVAILABLE = 4;

const update = (version: string): Promise<unknown> =>
  cluster.client.updateWorkload({ name: 'web', spec: { env: { VERSION: version } } });

async function replicaIds(): Promise<readonly string[]> {
  return liveIds(await rolledOut(cluster, 'web'));
}

async function nodeInUse(): Promise<string> {
  return liveReplicas(await rolledOut(cluster, 'web'))[0]!.nodeId;
}

/** Drains a node. */
async function drain(node: string): Promise<void> {
  expect(await cluster.ctl('node', 'drain', node, '--wait')).toMatchObject({ code: 0 });
  expect(await cluster.client.getNode({ nodeId: node })).toMatchObject({
    draining: true,
    status: { replicaCount: 0 },
  });
}

describe('workload under load', () => {
  it('loses no request and keeps min_available during a rolling update', async () => {
    const before = await replicaIds();
    const clients = await underLoad(cluster, 'web', async () => {
      await update('2');
      await rolledOut(cluster, 'web');
    });
    expectServed(clients, MIN_AVAILABLE);
    expect((await replicaIds()).filter((id) => before.includes(id))).toEqual([]);
    // Both versions must have answered; otherwise the absence of failures proves nothing.
    for (const { versions } of clients) expect(versions).toEqual(['1', '2']);
  });

  it('loses no request and keeps min_available during a rollout undo', async () => {
    const clients = await underLoad(cluster, 'web', async () => {
      await cluster.client.undoRollout({ name: 'web' });
      await rolledOut(cluster, 'web');
    });
    expectServed(clients, MIN_AVAILABLE);
    for (const { versions } of clients) expect(versions).toEqual(['1', '2']);
    expect((await cluster.client.getWorkload({ name: 'web' })).spec?.env).toEqual({ VERSION: '1' });
  });

  it('loses no request and keeps min_available during a drain', async () => {
    const before = await replicaIds();
    const node = await nodeInUse();
    const clients = await underLoad(cluster, 'web', () => drain(node));
    expectServed(clients, MIN_AVAILABLE);
    const after = await replicaIds();
    // Replicas on other nodes are not replaced.
    expect(before.filter((id) => after.includes(id)).length).toBeGreaterThanOrEqual(2);
    expect(after.filter((id) => !before.includes(id)).length).toBeGreaterThanOrEqual(1);
    await cluster.client.uncordonNode({ nodeId: node });
  });

  it('loses no request and keeps min_available during a simultaneous rolling update and drain', async () => {
    const node = await nodeInUse();
    const clients = await underLoad(cluster, 'web', async () => {
      await Promise.all([update('3'), drain(node)]);
      await rolledOut(cluster, 'web');
    });
    expectServed(clients, MIN_AVAILABLE);
    const after = liveReplicas(await rolledOut(cluster, 'web'));
    expect(after.map(({ nodeId }) => nodeId)).not.toContain(node);
    for (const { versions } of clients) expect(versions).toEqual(['1', '3']);
  });
});
