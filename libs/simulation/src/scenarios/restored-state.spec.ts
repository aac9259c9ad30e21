import { Code } from '@connectrpc/connect';
import {
  Event_Category as Category,
  Event_Severity as Severity,
  ReplicaStatus_Phase as Phase,
} from '@cloudless/api';
import { markRestored } from '@cloudless/cluster-state';
import {
  MemoryStorage,
  createEngineStore,
  exportSnapshot,
  importSnapshot,
  type StateStore,
} from '@cloudless/state-store';
import { startCluster, createWeb, readWeb } from '../test-cluster/web-workload.js';
import type { TestCluster } from '../test-cluster/test-cluster.js';

/**
 * Copies the store as a backup does: its current content, without later changes.
 * @param changeEntry - `markRestored` for the copy that a restore makes. Default: a plain copy.
 */
async function copyOf(
  cluster: TestCluster,
  changeEntry?: typeof markRestored,
): Promise<StateStore> {
  const storage = new MemoryStorage(1_000);
  await importSnapshot(
    storage,
    exportSnapshot(cluster.store, { clusterId: cluster.state.clusterId, schemaVersion: 1 }),
    changeEntry,
  );
  return createEngineStore({ storage, clock: cluster.clock, historyLimit: 1_000 });
}

/**
 * Stops the coordinator, replaces its store, and starts a coordinator again. Agents reconnect only
 * when the test reconnects them.
 */
async function restoreStore(cluster: TestCluster, store: StateStore): Promise<void> {
  await cluster.stopCoordinator();
  for (const agent of cluster.agents.values()) agent.disconnect();
  cluster.store = store;
  await cluster.startCoordinator();
}

async function reconnectAll(cluster: TestCluster): Promise<void> {
  for (const nodeId of cluster.agents.keys()) await cluster.reconnect(nodeId);
}

const runningOn = (cluster: TestCluster): Record<string, readonly string[]> =>
  Object.fromEntries(
    [...cluster.agents].map(([nodeId, { replicas }]) => [
      nodeId,
      [...replicas.values()]
        .filter(({ phase }) => phase === Phase.RUNNING)
        .map(({ replicaId }) => replicaId),
    ]),
  );
const acceptedOrders = (cluster: TestCluster): number =>
  [...cluster.agents.values()].reduce((sum, agent) => sum + agent.acceptedOrders, 0);
const systemEvents = async (cluster: TestCluster) => {
  const { events } = await cluster.complete(() => cluster.client.listEvents({ pageSize: 1_000 }));
  return events.filter(({ category }) => category === Category.SYSTEM);
};
const scale = (cluster: TestCluster, replicas: number) =>
  cluster.complete(() => cluster.client.scaleWorkload({ name: 'web', replicas }));

/** Starts two nodes, and restores a backup with three replicas of `web` when `web` has five. */
async function startWithRestorableBackup(): Promise<TestCluster> {
  const cluster = await startCluster(2);
  await createWeb(cluster);
  await cluster.advance(1_000);
  const copy = await copyOf(cluster);
  await scale(cluster, 5);
  await cluster.advance(1_000);
  await restoreStore(cluster, copy);
  return cluster;
}

describe('restored older store', () => {
  it('blocks orders and decisions, reports this once, and continues to serve reads and reports', async () => {
    const cluster = await startWithRestorableBackup();
    const before = { running: runningOn(cluster), acceptedCount: acceptedOrders(cluster) };
    await reconnectAll(cluster);
    await cluster.advance(30_000);
    expect({ running: runningOn(cluster), acceptedCount: acceptedOrders(cluster) }).toEqual(before);
    const web = await readWeb(cluster);
    expect(web.status).toMatchObject({ desiredReplicas: 3, readyReplicas: 3, totalReplicas: 3 });
    expect(await systemEvents(cluster)).toMatchObject([
      { severity: Severity.ERROR, reason: 'StoreWentBackInTime' },
    ]);
    expect((await systemEvents(cluster))[0]!.message).toMatch(
      /^the store went back in time: node "node-\d" holds orders that this store has never issued, .*order revision \d+ \(here: \d+\).*run: cloudlessctl admin accept-restored-state$/,
    );
    await expect(scale(cluster, 4)).rejects.toMatchObject({
      code: Code.FailedPrecondition,
      message: expect.stringContaining('run: cloudlessctl admin accept-restored-state') as string,
    });
    const [replica] = web.status!.replicas;
    cluster.agents.get(replica!.nodeId)!.change(replica!.id, { ready: false, reason: 'busy' });
    await cluster.advance(100);
    expect((await readWeb(cluster)).status?.readyReplicas).toBe(2);
  });

  it('replaces nothing on a lost node until an operator accepts the state', async () => {
    const cluster = await startWithRestorableBackup();
    await cluster.reconnect('node-1');
    const before = acceptedOrders(cluster);
    await cluster.advance(60_000);
    expect(acceptedOrders(cluster)).toBe(before);
    expect((await readWeb(cluster)).status?.totalReplicas).toBe(3);
    await cluster.complete(() => cluster.admin.acceptRestoredState({}));
    await cluster.advance(10_000);
    expect((await readWeb(cluster)).status?.readyReplicas).toBe(3);
    expect(runningOn(cluster)['node-1']).toHaveLength(3);
  });

  it('becomes authoritative when accepted: unknown replicas are stopped, the others stay', async () => {
    const cluster = await startWithRestorableBackup();
    const known = (await readWeb(cluster)).status!.replicas.map(({ id }) => id).sort();
    await reconnectAll(cluster);
    await cluster.advance(2_000);
    const { accepted, epoch } = await cluster.complete(() => cluster.admin.acceptRestoredState({}));
    expect(accepted).toBe(true);
    expect(cluster.state.epoch).toBe(epoch);
    await cluster.advance(5_000);
    expect(Object.values(runningOn(cluster)).flat().sort()).toEqual(known);
    expect(
      [...cluster.agents.values()].flatMap(({ replicas }) => [...replicas.keys()]).sort(),
    ).toEqual(known);
    expect((await readWeb(cluster)).status).toMatchObject({
      desiredReplicas: 3,
      readyReplicas: 3,
      totalReplicas: 3,
    });
    expect((await systemEvents(cluster)).map(({ reason }) => reason)).toEqual([
      'StoreWentBackInTime',
      'RestoredStateAccepted',
    ]);
    await scale(cluster, 6);
    await cluster.advance(2_000);
    expect((await readWeb(cluster)).status?.readyReplicas).toBe(6);
    const again = await cluster.complete(() => cluster.admin.acceptRestoredState({}));
    expect(again).toMatchObject({ accepted: false, epoch });
  });

  it('makes agents follow its own records after the acceptance, even where they hold newer orders', async () => {
    const cluster = await startCluster(2);
    await createWeb(cluster);
    await cluster.advance(1_000);
    const copy = await copyOf(cluster);
    for (const agent of cluster.agents.values()) agent.obeysStops = false;
    await scale(cluster, 0); // three stop orders that the backup does not contain
    await cluster.advance(100);
    const stopping = [...cluster.agents.values()].flatMap(({ replicas }) => [...replicas.values()]);
    expect(stopping.map(({ phase }) => phase)).toEqual([
      Phase.STOPPING,
      Phase.STOPPING,
      Phase.STOPPING,
    ]);
    await restoreStore(cluster, copy);
    await reconnectAll(cluster);
    await cluster.advance(2_000);
    await cluster.complete(() => cluster.admin.acceptRestoredState({}));
    await cluster.advance(2_000);
    for (const agent of cluster.agents.values()) {
      for (const { replicaId, orderRevision } of agent.replicas.values()) {
        const record = cluster.state.view().replica(replicaId)!.value;
        expect(orderRevision).toBe(cluster.state.toOrderRevision(record.orderRevision));
        agent.change(replicaId, { phase: Phase.STOPPED });
      }
    }
    await cluster.advance(20_000);
    expect((await readWeb(cluster)).status).toMatchObject({ readyReplicas: 3, totalReplicas: 3 });
    expect(Object.values(runningOn(cluster)).flat()).toHaveLength(3);
  });

  it('never reuses an id that may have been assigned after the backup', async () => {
    const cluster = await startWithRestorableBackup();
    const lost = Object.values(runningOn(cluster)).flat();
    await cluster.reconnect('node-1');
    await cluster.advance(1_000);
    await cluster.complete(() => cluster.admin.acceptRestoredState({}));
    await scale(cluster, 8);
    await cluster.advance(10_000);
    const created = (await readWeb(cluster))
      .status!.replicas.map(({ id }) => id)
      .filter((id) => !lost.includes(id));
    expect(created.length).toBeGreaterThanOrEqual(5);
    expect(created.every((id) => Number(id.split('-').at(-1)) > 1_000_000)).toBe(true);
  });

  it('stays blocked after a coordinator restart, before any agent reports newer state', async () => {
    const cluster = await startWithRestorableBackup();
    await reconnectAll(cluster);
    await cluster.advance(1_000);
    await restoreStore(cluster, cluster.store);
    await cluster.advance(60_000);
    await expect(scale(cluster, 4)).rejects.toMatchObject({ code: Code.FailedPrecondition });
    expect((await systemEvents(cluster)).map(({ reason }) => reason)).toEqual([
      'StoreWentBackInTime',
    ]);
    await cluster.complete(() => cluster.admin.acceptRestoredState({}));
    await scale(cluster, 4);
  });

  it('treats the orders of an agent that returns after the acceptance as old', async () => {
    const cluster = await startWithRestorableBackup();
    await cluster.reconnect('node-1');
    await cluster.advance(100);
    await cluster.complete(() => cluster.admin.acceptRestoredState({}));
    await cluster.advance(100);
    await cluster.reconnect('node-2');
    await cluster.advance(5_000);
    expect(cluster.state.storeRolledBack).toBeUndefined();
    expect((await readWeb(cluster)).status).toMatchObject({ readyReplicas: 3, totalReplicas: 3 });
    expect(Object.values(runningOn(cluster)).flat()).toHaveLength(3);
  });
});

describe('a store that a restore has marked', () => {
  it('starts no replica on the word of the first node, while another node runs its successor', async () => {
    const cluster = await startCluster(2);
    await createWeb(cluster, { replicas: 1 });
    await cluster.advance(1_000);
    const [replica] = (await readWeb(cluster)).status!.replicas;
    const copy = await copyOf(cluster, markRestored);
    const first = replica!.nodeId;
    await cluster.complete(() => cluster.client.drainNode({ nodeId: first }));
    await cluster.advance(20_000);
    const before = runningOn(cluster);
    expect(Object.values(before).flat()).toHaveLength(1);
    expect(before[first]).toEqual([]);
    await restoreStore(cluster, copy);
    await cluster.reconnect(first);
    await cluster.advance(20_000);
    expect(runningOn(cluster)).toEqual(before);
    await reconnectAll(cluster);
    await cluster.advance(1_000);
    expect(cluster.agents.has(cluster.state.storeRolledBack?.nodeId ?? '')).toBe(true);
    await cluster.complete(() => cluster.admin.acceptRestoredState({}));
    await cluster.advance(20_000);
    const running = Object.values(runningOn(cluster)).flat();
    expect(running).toHaveLength(1);
    expect(Object.values(before).flat()).not.toContain(running[0]);
  });
});

describe('a restored store', () => {
  it('is detected by an epoch that the store has not reached', async () => {
    const cluster = await startCluster(1);
    const copy = await copyOf(cluster);
    await cluster.restartCoordinator();
    await cluster.restartCoordinator();
    await cluster.reconnect('node-1');
    await restoreStore(cluster, copy);
    await cluster.reconnect('node-1');
    await cluster.advance(100);
    expect(cluster.state.storeRolledBack).toMatchObject({
      nodeId: 'node-1',
      highestEpoch: 3n,
      highestOrderRevision: 0n,
    });
  });

  it("is detected when an agent holds the coordinator's own epoch before any contact with it", async () => {
    const cluster = await startCluster(1);
    const copy = await copyOf(cluster);
    await cluster.restartCoordinator();
    await cluster.reconnect('node-1');
    await restoreStore(cluster, copy);
    await cluster.reconnect('node-1');
    await cluster.advance(100);
    expect(cluster.state.storeRolledBack).toMatchObject({ nodeId: 'node-1', highestEpoch: 2n });
  });

  it('is detected by an order of an earlier epoch that is newer than the start of the next epoch', async () => {
    const cluster = await startCluster(1);
    await createWeb(cluster, { replicas: 1 });
    await cluster.advance(1_000);
    const copy = await copyOf(cluster);
    await scale(cluster, 2);
    await cluster.advance(1_000);
    const orders = [...cluster.agents.get('node-1')!.replicas.values()].map(({ orderRevision }) =>
      Number(orderRevision),
    );
    await restoreStore(cluster, copy);
    for (let count = 0; count < 100; count += 1) {
      await cluster.complete(() =>
        cluster.client.createWorkload({
          name: `other-${count}`,
          spec: { command: ['serve'], replicas: 0 },
        }),
      );
    }
    await cluster.restartCoordinator();
    expect(Number(cluster.state.orderRevision)).toBeGreaterThan(Math.max(...orders) + 100);
    await cluster.reconnect('node-1');
    await cluster.advance(100);
    expect(Number(cluster.state.storeRolledBack?.highestOrderRevision)).toBe(Math.max(...orders));
  });

  it('is detected by a replica whose order is newer than its record', async () => {
    const cluster = await startCluster(1);
    await createWeb(cluster, { replicas: 1 });
    await cluster.advance(1_000);
    const agent = cluster.agents.get('node-1')!;
    const [id, report] = [...agent.replicas][0]!;
    agent.change(id, { orderRevision: report.orderRevision + 1n });
    await cluster.advance(100);
    expect(cluster.state.storeRolledBack).toMatchObject({
      nodeId: 'node-1',
      highestOrderRevision: report.orderRevision + 1n,
    });
  });

  it('is detected by a heartbeat', async () => {
    const cluster = await startCluster(1);
    const { clusterId } = cluster.state;
    const instanceId = 'instance-of-node-1-0123456789';
    const hello = {
      protocolMin: 1,
      protocolMax: 1,
      nodeId: 'node-1',
      instanceId,
      clusterId,
      highestEpoch: 9n,
    };
    const { orders } = await cluster.complete(() => cluster.client.heartbeat({ hello }));
    expect(orders).toEqual([]);
    expect(cluster.state.storeRolledBack).toMatchObject({ highestEpoch: 9n });
  });

  it('is not reported when coordinators restart on an unchanged store', async () => {
    const cluster = await startCluster(3);
    await createWeb(cluster);
    for (let count = 0; count < 5; count += 1) {
      await cluster.advance(500);
      await cluster.restartCoordinator();
      await reconnectAll(cluster);
      await scale(cluster, 2 + count);
    }
    await cluster.advance(5_000);
    expect(cluster.state.storeRolledBack).toBeUndefined();
    expect((await readWeb(cluster)).status).toMatchObject({ readyReplicas: 6, totalReplicas: 6 });
  });
});
