import { errorKindOf } from '@cloudless/base';
import { openClusterState } from '@cloudless/cluster-state';
import { createSeededRandom, silentLog } from '@cloudless/base';
import { startCluster, createWeb, readWeb } from '../test-cluster/web-workload.js';

describe('reconciler', () => {
  it('commits nothing while nothing changes', async () => {
    const cluster = await startCluster(3);
    await createWeb(cluster);
    await cluster.complete(() =>
      cluster.client.createWorkload({
        name: 'stuck',
        spec: { command: ['x'], placement: { zones: ['nowhere'] } },
      }),
    );
    await cluster.advance(5_000);
    const { revision } = cluster.state.view();
    await cluster.advance(120_000, 500);
    expect(cluster.state.view().revision).toBe(revision);
  });

  it('of a coordinator that lost the leadership makes few further attempts to commit', async () => {
    const cluster = await startCluster(3);
    await createWeb(cluster);
    await cluster.advance(1_000);
    const other = await openClusterState({
      store: cluster.store,
      clock: cluster.clock,
      random: createSeededRandom(9),
      log: silentLog,
      holder: 'another',
    });
    const before = cluster.attemptedTransactions;
    for (const agent of cluster.agents.values()) agent.sendsPings = false;
    await cluster.advance(10_000, 100);
    expect(cluster.attemptedTransactions - before).toBeLessThan(300);
    await other.close();
  });

  it('does not apply the slot back-off of an old version to a new version', async () => {
    const cluster = await startCluster(3);
    for (const agent of cluster.agents.values()) agent.onStart = 'fails';
    await createWeb(cluster, { replicas: 1 });
    await cluster.advance(40_000, 50);
    for (const agent of cluster.agents.values()) agent.onStart = 'ready';
    await cluster.complete(() =>
      cluster.client.updateWorkload({ name: 'web', spec: { args: ['fixed'] } }),
    );
    await cluster.advance(1_000);
    expect((await readWeb(cluster)).status?.readyReplicas).toBe(1);
  });

  it('rolls out only the newest version after an update during an update', async () => {
    const cluster = await startCluster(3);
    await createWeb(cluster, { replicas: 6 });
    await cluster.advance(1_000);
    for (const args of [['two'], ['three'], ['four']]) {
      await cluster.complete(() => cluster.client.updateWorkload({ name: 'web', spec: { args } }));
      await cluster.advance(30);
    }
    await cluster.complete(() => cluster.client.scaleWorkload({ name: 'web', replicas: 4 }));
    await cluster.advance(5_000);
    const { status } = await readWeb(cluster);
    expect(status).toMatchObject({
      version: 4,
      readyReplicas: 4,
      updatedReplicas: 4,
      totalReplicas: 4,
    });
    await cluster.complete(() =>
      cluster.client.updateWorkload({ name: 'web', spec: { args: ['five'] } }),
    );
    await cluster.complete(() => cluster.client.deleteWorkload({ name: 'web' }));
    await cluster.advance(5_000);
    await expect(readWeb(cluster)).rejects.toThrow('not found');
    expect([...cluster.state.view().replicas()]).toEqual([]);
    expect([...cluster.agents.values()].map(({ replicas }) => replicas.size)).toEqual([0, 0, 0]);
  });

  it('completes a deletion without a lost node and stops its replicas when the node returns', async () => {
    const cluster = await startCluster(3);
    await createWeb(cluster);
    await cluster.advance(1_000);
    const agent = cluster.agents.get('node-1')!;
    agent.disconnect();
    await cluster.complete(() => cluster.client.deleteWorkload({ name: 'web' }));
    await cluster.advance(5_000);
    await expect(readWeb(cluster)).rejects.toThrow('not found');
    await createWeb(cluster);
    await cluster.reconnect('node-1');
    await cluster.advance(2_000);
    expect((await readWeb(cluster)).status).toMatchObject({ readyReplicas: 3, totalReplicas: 3 });
    const known = new Set([...cluster.state.view().replicas()].map(({ value }) => value.id));
    expect([...agent.replicas.keys()].filter((id) => !known.has(id))).toEqual([]);
    expect(known.size).toBe(3);
  });
});

describe('request id', () => {
  it('of two concurrent creations makes one workload and one response', async () => {
    const cluster = await startCluster(1);
    const call = () =>
      cluster.client.createWorkload({
        name: 'web',
        requestId: 'r-1',
        spec: { command: ['serve'] },
      });
    const [first, second] = await cluster.complete(() => Promise.all([call(), call()]));
    expect(second.uid).toBe(first.uid);
    await cluster.advance(500);
    expect([...cluster.state.view().workloads()]).toHaveLength(1);
  });

  it('applies a scale once, also when the call is repeated after another scale', async () => {
    const cluster = await startCluster(1);
    await createWeb(cluster);
    const scale = (replicas: number, requestId: string) =>
      cluster.complete(() => cluster.client.scaleWorkload({ name: 'web', replicas, requestId }));
    const first = await scale(5, 'r-1');
    await scale(2, 'r-2');
    expect((await scale(5, 'r-1')).generation).toBe(first.generation);
    expect((await readWeb(cluster)).spec?.replicas).toBe(2);
    await expect(scale(6, 'r-1')).rejects.toThrow('request_id');
  });

  it('of a deletion returns the same uid after the workload is gone', async () => {
    const cluster = await startCluster(1);
    const { uid } = await createWeb(cluster);
    const remove = () =>
      cluster.complete(() => cluster.client.deleteWorkload({ name: 'web', requestId: 'r-1' }));
    await remove();
    await cluster.advance(5_000);
    await expect(readWeb(cluster)).rejects.toThrow('not found');
    expect((await remove()).uid).toBe(uid);
  });

  it('is not needed for concurrent calls, which are applied one after the other in their order', async () => {
    const cluster = await startCluster(1);
    await createWeb(cluster);
    const calls = [1, 2, 3, 4, 5, 6].map(
      (replicas) => () => cluster.client.scaleWorkload({ name: 'web', replicas }),
    );
    const outcomes = await cluster.complete(() => Promise.allSettled(calls.map((call) => call())));
    const refused = outcomes.flatMap((outcome) =>
      outcome.status === 'rejected' ? [errorKindOf(outcome.reason)] : [],
    );
    expect(refused).toEqual([]);
    expect(await readWeb(cluster)).toMatchObject({
      generation: BigInt(1 + calls.length),
      spec: { replicas: 6 },
    });
  });
});
