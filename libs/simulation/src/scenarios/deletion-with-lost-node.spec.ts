import {
  WatchWorkloadsResponse_Kind as Kind,
  WorkloadStatus_Phase as Phase,
  type WatchWorkloadsResponse,
} from '@cloudless/api';
import { startCluster, createWeb, readWeb } from '../test-cluster/web-workload.js';
import type { TestCluster } from '../test-cluster/test-cluster.js';

/**
 * Watches `web` from now on.
 * @returns The items so far, and a function that ends the watch.
 */
function watchWeb(cluster: TestCluster): {
  readonly items: WatchWorkloadsResponse[];
  stop(): void;
} {
  const items: WatchWorkloadsResponse[] = [];
  const watch = new AbortController();
  const follow = async (): Promise<void> => {
    for await (const item of cluster.client.watchWorkloads(
      { name: 'web' },
      { signal: watch.signal },
    ))
      items.push(item);
  };
  void follow().catch(() => undefined);
  return { items, stop: () => watch.abort() };
}

const eventsOf = async (cluster: TestCluster, reason: string) =>
  (
    await cluster.complete(() => cluster.client.listEvents({ workload: 'web', pageSize: 1_000 }))
  ).events.filter((event) => event.reason === reason);

/**
 * Starts two nodes with one replica of `web` each, and disconnects `node-2`.
 * @returns The id of the replica on `node-2`.
 */
async function startWithSilentNode(): Promise<{
  readonly cluster: TestCluster;
  readonly replicaOnSilentNode: string;
}> {
  const cluster = await startCluster(2);
  await createWeb(cluster, { replicas: 2 });
  await cluster.advance(1_000);
  const [replicaOnSilentNode] = cluster.agents.get('node-2')!.replicas.keys();
  cluster.agents.get('node-2')!.disconnect();
  return { cluster, replicaOnSilentNode: replicaOnSilentNode! };
}

describe('deletion of a workload with a replica on a silent node', () => {
  it('ends when the node is lost and names the replica that may still run', async () => {
    const { cluster, replicaOnSilentNode } = await startWithSilentNode();
    const watch = watchWeb(cluster);
    await cluster.complete(() => cluster.client.deleteWorkload({ name: 'web' }));
    await cluster.advance(1_500);
    expect((await readWeb(cluster)).status?.phase).toBe(Phase.TERMINATING);
    await cluster.advance(4_000);
    await expect(readWeb(cluster)).rejects.toThrow('not found');
    const deletions = watch.items.filter(({ kind }) => kind === Kind.DELETED);
    expect(deletions.map(({ workload }) => workload?.status?.replicas)).toMatchObject([
      [{ id: replicaOnSilentNode, nodeId: 'node-2', mayStillRun: true }],
    ]);
    expect(await eventsOf(cluster, 'WorkloadDeleted')).toMatchObject([
      {
        message: `workload default/web is gone: every reachable node has confirmed; 1 replica may still run: ${replicaOnSilentNode} on lost node node-2`,
        replicaIds: [replicaOnSilentNode],
      },
    ]);
    watch.stop();
  });

  it('stops the replica when the node returns', async () => {
    const { cluster, replicaOnSilentNode } = await startWithSilentNode();
    await cluster.advance(6_000);
    expect(
      (await readWeb(cluster)).status?.replicas.filter(({ mayStillRun }) => mayStillRun),
    ).toMatchObject([{ id: replicaOnSilentNode }]);
    const watch = watchWeb(cluster);
    await cluster.complete(() => cluster.client.deleteWorkload({ name: 'web' }));
    await cluster.advance(2_000);
    expect(watch.items.at(-1)).toMatchObject({
      kind: Kind.DELETED,
      workload: { status: { replicas: [{ id: replicaOnSilentNode }] } },
    });
    await cluster.reconnect('node-2');
    await cluster.advance(3_000);
    expect([...cluster.agents.get('node-2')!.replicas.values()]).toEqual([]);
    expect([...cluster.state.view().replicas()]).toEqual([]);
    watch.stop();
  });

  it('names no replica when every node has confirmed its stop', async () => {
    const cluster = await startCluster(2);
    await createWeb(cluster, { replicas: 2 });
    await cluster.advance(1_000);
    const watch = watchWeb(cluster);
    await cluster.complete(() => cluster.client.deleteWorkload({ name: 'web' }));
    await cluster.advance(4_000);
    expect(watch.items.at(-1)).toMatchObject({ kind: Kind.DELETED });
    expect(watch.items.at(-1)?.workload?.status?.replicas ?? []).toEqual([]);
    expect(await eventsOf(cluster, 'WorkloadDeleted')).toMatchObject([
      { message: 'workload default/web is gone: every node has confirmed', replicaIds: [] },
    ]);
    watch.stop();
  });
});
