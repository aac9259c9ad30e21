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

/** Of 4: nothing may be stopped before its replacement has proven itself. */
const MIN_AVAILABLE = 4;

const update = (version: string): Promise<unknown> =>
  cluster.client.updateWorkload({ name: 'web', spec: { env: { VERSION: version } } });

async function replicaIds(): Promise<readonly string[]> {
  return liveIds(await rolledOut(cluster, 'web'));
}

async function nodeInUse(): Promise<string> {
  return liveReplicas(await rolledOut(cluster, 'web'))[0]!.nodeId;
}

/** Empties a node. */
async function drain(node: string): Promise<void> {
  expect(await cluster.ctl('node', 'drain', node, '--wait')).toMatchObject({ code: 0 });
  expect(await cluster.client.getNode({ nodeId: node })).toMatchObject({
    draining: true,
    status: { replicaCount: 0 },
  });
}

describe('clients that follow the endpoints miss no answer, and min_available replicas are ready all the time', () => {
  it('a rolling update', async () => {
    const before = await replicaIds();
    const clients = await underLoad(cluster, 'web', async () => {
      await update('2');
      await rolledOut(cluster, 'web');
    });
    expectServed(clients, MIN_AVAILABLE);
    expect((await replicaIds()).filter((id) => before.includes(id))).toEqual([]);
    // They did ask both versions, so silence is no success.
    for (const { versions } of clients) expect(versions).toEqual(['1', '2']);
  });

  it('an undo', async () => {
    const clients = await underLoad(cluster, 'web', async () => {
      await cluster.client.undoRollout({ name: 'web' });
      await rolledOut(cluster, 'web');
    });
    expectServed(clients, MIN_AVAILABLE);
    for (const { versions } of clients) expect(versions).toEqual(['1', '2']);
    expect((await cluster.client.getWorkload({ name: 'web' })).spec?.env).toEqual({ VERSION: '1' });
  });

  it('a drain', async () => {
    const before = await replicaIds();
    const node = await nodeInUse();
    const clients = await underLoad(cluster, 'web', () => drain(node));
    expectServed(clients, MIN_AVAILABLE);
    const after = await replicaIds();
    // What was not on the node stays as it was.
    expect(before.filter((id) => after.includes(id)).length).toBeGreaterThanOrEqual(2);
    expect(after.filter((id) => !before.includes(id)).length).toBeGreaterThanOrEqual(1);
    await cluster.client.uncordonNode({ nodeId: node });
  });

  it('a rolling update and a drain at once', async () => {
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
