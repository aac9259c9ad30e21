import {
  Rollout_Promotion as Promotion,
  Rollout_Strategy as Strategy,
  type ReplicaStatus,
} from '@cloudless/api';
import { TestCluster } from '../index.js';
import { createWeb, readWeb } from '../test-cluster/web-workload.js';

const blueGreen = { rollout: { strategy: Strategy.BLUE_GREEN, promotion: Promotion.MANUAL } };
const green = { env: { COLOUR: 'green' } };

/** Starts nodes with capacity for the given numbers of replicas of 100 m CPU. */
async function startNodesFor(...counts: number[]): Promise<TestCluster> {
  const cluster = await TestCluster.start();
  for (const [index, count] of counts.entries()) await addNode(cluster, `node-${index + 1}`, count);
  return cluster;
}

const addNode = (cluster: TestCluster, nodeId: string, count: number) =>
  cluster.addNode(nodeId, {
    zone: nodeId,
    maxReplicas: 1_000,
    capacity: { cpuMillis: 100 * count, memoryBytes: 64n * 1024n ** 3n },
  });

const update = (cluster: TestCluster) =>
  cluster.complete(() => cluster.client.updateWorkload({ name: 'web', spec: green }));
const readReplicas = async (cluster: TestCluster, version: number): Promise<ReplicaStatus[]> =>
  ((await readWeb(cluster)).status?.replicas ?? []).filter(
    (replica) => replica.version === version,
  );
const countPlaced = (replicas: readonly ReplicaStatus[]): number =>
  replicas.filter(({ nodeId }) => nodeId !== '').length;

describe('new set of a blue/green rollout', () => {
  it('is not placed when two of its five replicas fit nowhere, and each replica reports the reason', async () => {
    const cluster = await startNodesFor(4, 4);
    await createWeb(cluster, { ...blueGreen, replicas: 5 });
    await cluster.advance(3_000);
    await update(cluster);
    await cluster.advance(5_000);
    const waiting = await readReplicas(cluster, 2);
    expect(waiting).toHaveLength(5);
    expect(countPlaced(waiting)).toBe(0);
    const unplacedReason =
      'the new set of 5 replicas is placed as a whole, and 2 of them find no node: needs 100m CPU, more than is free: 2 of 2 nodes';
    expect(new Set(waiting.map(({ reason }) => reason))).toEqual(new Set([unplacedReason]));
    expect((await readWeb(cluster)).status).toMatchObject({
      readyReplicas: 5,
      reason: `5 of 5 replicas without a node: ${unplacedReason}`,
    });
    const events = cluster.state.view().events();
    expect(
      events.filter(({ reason }) => reason === 'ReplicasUnplaced').map(({ message }) => message),
    ).toEqual([unplacedReason]);
    await addNode(cluster, 'node-3', 2);
    await cluster.advance(1_000);
    expect(countPlaced(await readReplicas(cluster, 2))).toBe(5);
  });

  it('leaves capacity to other workloads while it waits', async () => {
    const cluster = await startNodesFor(8);
    await createWeb(cluster, { ...blueGreen, replicas: 5 });
    await cluster.advance(3_000);
    await update(cluster);
    await cluster.advance(1_000);
    const other = { command: ['other'], replicas: 3 };
    await cluster.complete(() => cluster.client.createWorkload({ name: 'other', spec: other }));
    await cluster.advance(1_000);
    const { status } = await cluster.complete(() => cluster.client.getWorkload({ name: 'other' }));
    expect(status?.readyReplicas).toBe(3);
    expect(countPlaced(await readReplicas(cluster, 2))).toBe(0);
  });

  it('that needs several commits waits for its last replica, then is placed at once', async () => {
    const cluster = await startNodesFor(210, 0);
    await createWeb(cluster, { ...blueGreen, replicas: 100 });
    await cluster.advance(3_000);
    await update(cluster);
    const seen = new Set<number>();
    for (let step = 0; step < 40; step += 1) {
      await cluster.advance(20);
      seen.add(countPlaced(await readReplicas(cluster, 2)));
    }
    expect(seen.has(100)).toBe(true);
    const decisions = cluster.state
      .view()
      .events()
      .filter(({ reason, replicaIds }) => reason === 'ReplicasPlaced' && replicaIds.length > 0)
      .map(({ decision, replicaIds }) => [decision?.id, replicaIds.length] as const)
      .slice(-3);
    expect(decisions.map(([, count]) => count)).toEqual([45, 45, 10]);
    expect(new Set(decisions.map(([id]) => id)).size).toBe(1);
  });

  it('that needs several commits is not placed when its last replica fits nowhere', async () => {
    const cluster = await startNodesFor(199);
    await createWeb(cluster, { ...blueGreen, replicas: 100 });
    await cluster.advance(3_000);
    await update(cluster);
    await cluster.advance(3_000, 50);
    const waiting = await readReplicas(cluster, 2);
    expect(countPlaced(waiting)).toBe(0);
    const unplacedReason =
      'the new set of 100 replicas is placed as a whole, and 1 of them finds no node: needs 100m CPU, more than is free: 1 of 1 nodes';
    expect(new Set(waiting.map(({ reason }) => reason))).toEqual(new Set([unplacedReason]));
  });

  it('is placed replica by replica in a first deployment', async () => {
    const cluster = await startNodesFor(3);
    await createWeb(cluster, { ...blueGreen, replicas: 5 });
    await cluster.advance(3_000);
    expect((await readWeb(cluster)).status).toMatchObject({ readyReplicas: 3 });
  });

  it('is replaced replica by replica when a part of it is lost later', async () => {
    const cluster = await startNodesFor(6, 6, 6);
    await createWeb(cluster, { ...blueGreen, replicas: 5 });
    await cluster.advance(3_000);
    await update(cluster);
    await cluster.advance(3_000);
    cluster.agents.get('node-2')!.disconnect();
    await cluster.advance(8_000);
    const set = (await readReplicas(cluster, 2)).filter(
      ({ leaving, phase }) => !leaving && phase < 5,
    );
    expect(set.map(({ nodeId }) => nodeId).sort()).not.toContain('node-2');
    expect(countPlaced(set)).toBe(5);
  });
});
