import { startCluster, createWeb, readWeb } from '../test-cluster/web-workload.js';

const countByNode = (nodeIds: readonly string[]): Record<string, number> => {
  const result: Record<string, number> = {};
  for (const nodeId of [...nodeIds].sort()) result[nodeId] = (result[nodeId] ?? 0) + 1;
  return result;
};

describe('plan', () => {
  it.each([1, 3, 5, 8])(
    'of a new workload with %i replicas predicts the nodes of its replicas and commits nothing',
    async (replicas) => {
      const cluster = await startCluster(4);
      const { revision } = cluster.state.view();
      const plan = await cluster.complete(() =>
        cluster.client.planWorkload({ name: 'web', spec: { command: ['serve'], replicas } }),
      );
      expect(cluster.state.view().revision).toBe(revision);
      await createWeb(cluster, { replicas });
      await cluster.advance(500);
      const { status } = await readWeb(cluster);
      expect(countByNode(plan.placements.map(({ nodeId }) => nodeId))).toEqual(
        countByNode(status?.replicas.map(({ nodeId }) => nodeId) ?? []),
      );
    },
  );

  it.each([
    { replicas: 3, rollout: {} },
    { replicas: 5, rollout: { minAvailable: 5, maxSurge: 2 } },
    { replicas: 6, rollout: { maxSurge: 0, maxUnavailable: 2 } },
  ])(
    'of an update of $replicas replicas reports bounds that the ready and live counts keep',
    async ({ replicas, rollout }) => {
      const cluster = await startCluster(4);
      await createWeb(cluster, { replicas, rollout });
      await cluster.advance(1_000);
      const spec = { args: ['new'] };
      const plan = await cluster.complete(() => cluster.client.planWorkload({ name: 'web', spec }));
      let [lowestReady, highestLive] = [replicas, replicas];
      cluster.state.subscribe(() => {
        const live = [...cluster.state.view().replicas()]
          .map(({ value }) => value)
          .filter(({ phase }) => phase <= 4);
        lowestReady = Math.min(
          lowestReady,
          live.filter(({ ready, desiredRunning }) => ready && desiredRunning).length,
        );
        highestLive = Math.max(highestLive, live.length);
      });
      await cluster.complete(() => cluster.client.updateWorkload({ name: 'web', spec }));
      await cluster.advance(20_000, 50);
      expect((await readWeb(cluster)).status).toMatchObject({
        readyReplicas: replicas,
        updatedReplicas: replicas,
      });
      expect(lowestReady).toBeGreaterThanOrEqual(plan.lowestReady);
      expect(highestLive).toBeLessThanOrEqual(plan.highestLive);
    },
  );

  it('of an empty change of a completed job has no steps', async () => {
    const cluster = await startCluster(2);
    for (const agent of cluster.agents.values()) agent.onStart = 'succeeds';
    await createWeb(cluster, { restart: { policy: 1 } });
    await cluster.advance(1_000);
    const plan = await cluster.complete(() =>
      cluster.client.planWorkload({ name: 'web', spec: {} }),
    );
    expect(plan.steps).toEqual([]);
  });
});
