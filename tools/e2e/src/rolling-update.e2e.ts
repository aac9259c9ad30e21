import { RealCluster } from './support/cluster.js';
import {
  expectServed,
  listLiveIds,
  listLiveReplicas,
  waitUntilRolledOut,
  runUnderLoad,
  createWebSpec,
} from './support/rollout-tools.js';

let cluster: RealCluster;
beforeAll(async () => {
  cluster = await RealCluster.start();
  await cluster.client.createWorkload({
    name: 'web',
    spec: createWebSpec({ minAvailable: MIN_AVAILABLE, maxSurge: 2 }),
  });
  await waitUntilRolledOut(cluster, 'web');
});
afterAll(() => cluster.stop());

/** All four replicas: an old replica may be stopped only after its replacement is available. */
const MIN_AVAILABLE = 4;

const updateTo = (version: string): Promise<unknown> =>
  cluster.client.updateWorkload({ name: 'web', spec: { env: { VERSION: version } } });

async function listReplicaIds(): Promise<readonly string[]> {
  return listLiveIds(await waitUntilRolledOut(cluster, 'web'));
}

/** Returns a node that has a replica. */
async function findUsedNode(): Promise<string> {
  return listLiveReplicas(await waitUntilRolledOut(cluster, 'web'))[0]!.nodeId;
}

/** Drains a node and expects that no replica is left on it. */
async function drainNode(node: string): Promise<void> {
  expect(await cluster.runCtl('node', 'drain', node, '--wait')).toMatchObject({ code: 0 });
  expect(await cluster.client.getNode({ nodeId: node })).toMatchObject({
    draining: true,
    status: { replicaCount: 0 },
  });
}

describe('workload under load', () => {
  it('loses no request and keeps min_available during a rolling update', async () => {
    const before = await listReplicaIds();
    const clients = await runUnderLoad(cluster, 'web', async () => {
      await updateTo('2');
      await waitUntilRolledOut(cluster, 'web');
    });
    expectServed(clients, MIN_AVAILABLE);
    expect((await listReplicaIds()).filter((id) => before.includes(id))).toEqual([]);
    // without answers of both versions, the absence of failures would prove nothing
    for (const { versions } of clients) expect(versions).toEqual(['1', '2']);
  });

  it('loses no request and keeps min_available during a rollout undo', async () => {
    const clients = await runUnderLoad(cluster, 'web', async () => {
      await cluster.client.undoRollout({ name: 'web' });
      await waitUntilRolledOut(cluster, 'web');
    });
    expectServed(clients, MIN_AVAILABLE);
    for (const { versions } of clients) expect(versions).toEqual(['1', '2']);
    expect((await cluster.client.getWorkload({ name: 'web' })).spec?.env).toEqual({ VERSION: '1' });
  });

  it('loses no request and keeps min_available during a drain', async () => {
    const before = await listReplicaIds();
    const node = await findUsedNode();
    const clients = await runUnderLoad(cluster, 'web', () => drainNode(node));
    expectServed(clients, MIN_AVAILABLE);
    const after = await listReplicaIds();
    // replicas on other nodes are not replaced
    expect(before.filter((id) => after.includes(id)).length).toBeGreaterThanOrEqual(2);
    expect(after.filter((id) => !before.includes(id)).length).toBeGreaterThanOrEqual(1);
    await cluster.client.uncordonNode({ nodeId: node });
  });

  it('loses no request and keeps min_available while a rolling update and a drain run together', async () => {
    const node = await findUsedNode();
    const clients = await runUnderLoad(cluster, 'web', async () => {
      await Promise.all([updateTo('3'), drainNode(node)]);
      await waitUntilRolledOut(cluster, 'web');
    });
    expectServed(clients, MIN_AVAILABLE);
    const after = listLiveReplicas(await waitUntilRolledOut(cluster, 'web'));
    expect(after.map(({ nodeId }) => nodeId)).not.toContain(node);
    for (const { versions } of clients) expect(versions).toEqual(['1', '3']);
  });
});
