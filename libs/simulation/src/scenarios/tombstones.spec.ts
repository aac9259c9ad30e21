import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { ReplicaStatus_Phase as Phase } from '@cloudless/api';
import { copyReplica } from '@cloudless/cluster-state';
import { startCluster, createWeb, readWeb } from '../test-cluster/web-workload.js';
import type { TestCluster } from '../test-cluster/test-cluster.js';

const DAY_MS = 24 * 3_600_000;

/**
 * Creates one replica on each of two nodes, and silences `node-2` until its replica is replaced.
 * @returns The id of the lost replica.
 */
async function createTombstone(cluster: TestCluster): Promise<string> {
  await createWeb(cluster, { replicas: 2 });
  await cluster.advance(1_000);
  const [lost] = cluster.agents.get('node-2')!.replicas.keys();
  cluster.agents.get('node-2')!.sendsPings = false;
  await cluster.advance(6_000);
  expect((await readWeb(cluster)).status?.readyReplicas).toBe(2);
  expect(cluster.state.view().replica(lost!)?.value).toMatchObject({
    lost: true,
    desiredRunning: false,
    nodeId: 'node-2',
  });
  return lost!;
}

/** Lets the silent node return with its replicas. */
async function returnNode(cluster: TestCluster): Promise<void> {
  cluster.agents.get('node-2')!.sendsPings = true;
  await cluster.reconnect('node-2');
  await cluster.advance(3_000);
}

/** Changes the records as if the node had been lost the given number of days ago. */
async function backdateLoss(cluster: TestCluster, id: string, days: number): Promise<void> {
  const stored = cluster.state.view().replica(id)!;
  const lostAt = timestampFromMs(cluster.clock.wallTime() - days * DAY_MS);
  const older = copyReplica(stored.value, { lostAt });
  await cluster.complete(() =>
    cluster.state.commit(cluster.state.transaction().updateReplica(stored, older)),
  );
  await cluster.advance(61_000, 100);
}

const phasesOn = (cluster: TestCluster, nodeId: string): readonly Phase[] =>
  [...cluster.agents.get(nodeId)!.replicas.values()].map(({ phase }) => phase);

describe('tombstone of a replica on a lost node', () => {
  it('is kept for 30 days, so that the returning node stops the replica, also after a coordinator restart', async () => {
    const cluster = await startCluster(2);
    const lost = await createTombstone(cluster);
    await backdateLoss(cluster, lost, 29);
    await cluster.restartCoordinator();
    await cluster.reconnect('node-1');
    await cluster.advance(2_000);
    await returnNode(cluster);
    expect(phasesOn(cluster, 'node-2')).toEqual([]);
    expect(cluster.state.view().replica(lost)).toBeUndefined();
    expect((await readWeb(cluster)).status?.readyReplicas).toBe(2);
  });

  it('is removed after 30 days; the returning node then stops the replica as an orphan', async () => {
    const cluster = await startCluster(2);
    const lost = await createTombstone(cluster);
    await backdateLoss(cluster, lost, 31);
    expect(cluster.state.view().replica(lost)).toBeUndefined();
    await returnNode(cluster);
    expect(phasesOn(cluster, 'node-2')).toEqual([]);
    expect(cluster.state.storeRolledBack).toBeUndefined();
    expect((await readWeb(cluster)).status?.readyReplicas).toBe(2);
  });

  it('does not delay the deletion of its workload, and still stops the replica', async () => {
    const cluster = await startCluster(2);
    const lost = await createTombstone(cluster);
    await cluster.complete(() => cluster.client.deleteWorkload({ name: 'web' }));
    await cluster.advance(3_000);
    expect([...cluster.state.view().workloads()]).toEqual([]);
    expect(cluster.state.view().replica(lost)?.value.lost).toBe(true);
    await returnNode(cluster);
    expect(phasesOn(cluster, 'node-2')).toEqual([]);
    expect([...cluster.state.view().replicas()]).toEqual([]);
  });

  it('lets the replica be stopped also when the node was removed and enrols again', async () => {
    const cluster = await startCluster(2);
    await createTombstone(cluster);
    cluster.agents.get('node-2')!.disconnect();
    await cluster.complete(() => cluster.client.removeNode({ nodeId: 'node-2', force: true }));
    await returnNode(cluster);
    expect(phasesOn(cluster, 'node-2')).toEqual([]);
    expect(cluster.state.storeRolledBack).toBeUndefined();
  });

  it('stays while the replica stops, so that it is not treated as an orphan', async () => {
    const cluster = await startCluster(2);
    const lost = await createTombstone(cluster);
    const agent = cluster.agents.get('node-2')!;
    agent.obeysStops = false;
    await returnNode(cluster);
    const { acceptedOrders } = agent;
    await cluster.advance(5_000);
    expect(agent.replicas.get(lost)?.phase).toBe(Phase.STOPPING);
    expect(agent.acceptedOrders).toBe(acceptedOrders);
    agent.change(lost, { phase: Phase.STOPPED });
    await cluster.advance(1_000);
    expect(phasesOn(cluster, 'node-2')).toEqual([]);
    expect(cluster.state.view().replica(lost)).toBeUndefined();
  });
});
