import { WorkloadPlan_Action as Action, type ProposeMovesResponse } from '@cloudless/api';
import { createWeb, readWeb, startCluster } from '../test-cluster/web-workload.js';
import type { TestCluster } from '../index.js';

/** Starts `web` on two nodes, and then adds nodes in other zones. */
async function startUneven(replicas = 6, minAvailable = 6): Promise<TestCluster> {
  const cluster = await startCluster(2);
  await createWeb(cluster, { replicas, rollout: { minAvailable } });
  await cluster.advance(5_000);
  for (const number of [3, 4, 5, 6])
    await cluster.addNode(`node-${number}`, { zone: `zone-${number % 3}` });
  await cluster.advance(1_000);
  return cluster;
}

const propose = (cluster: TestCluster, maxMoves = 0): Promise<ProposeMovesResponse> =>
  cluster.complete(() => cluster.client.proposeMoves({ maxMoves }));
const planMoves = (cluster: TestCluster, { moves }: ProposeMovesResponse) =>
  cluster.complete(() =>
    cluster.client.createPlan({
      changes: [
        {
          change: {
            case: 'evict',
            value: { name: 'web', replicaIds: moves.map(({ replicaId }) => replicaId) },
          },
        },
      ],
    }),
  );
const listNodes = async (cluster: TestCluster): Promise<readonly string[]> =>
  ((await readWeb(cluster)).status?.replicas ?? [])
    .filter(({ leaving }) => !leaving)
    .map(({ nodeId }) => nodeId)
    .sort();

describe('a rebalance', () => {
  it('spreads replicas over new zones as its plan shows, and keeps min_available', async () => {
    const cluster = await startUneven();
    const before = await listNodes(cluster);
    const proposal = await propose(cluster);
    expect(proposal.moves).toMatchObject([
      { gain: 3, toZone: 'zone-0', reason: expect.stringMatching(/^zone zone-0 has 0 replicas/) },
      { gain: 2, toZone: 'zone-0' },
    ]);
    expect(await listNodes(cluster)).toEqual(before);
    const plan = await planMoves(cluster, proposal);
    expect(plan.workloads).toMatchObject([
      { action: Action.MOVE, name: 'web', minAvailable: 6, lowestReady: 6, unplaced: 0 },
    ]);
    let lowestReady = Infinity;
    cluster.state.subscribe(() => {
      const ready = [...cluster.state.view().replicas()].filter(
        ({ value }) => value.ready && value.desiredRunning,
      );
      lowestReady = Math.min(lowestReady, ready.length);
    });
    await cluster.complete(() => cluster.client.executePlan({ id: plan.id }));
    await cluster.advance(60_000, 50);
    const moved = plan.workloads[0]?.placements.map(({ nodeId }) => nodeId) ?? [];
    const leaving = proposal.moves.map(({ fromNodeId }) => fromNodeId);
    const expected = [...before];
    for (const nodeId of leaving) expected.splice(expected.indexOf(nodeId), 1);
    expect(await listNodes(cluster)).toEqual([...expected, ...moved].sort());
    expect(lowestReady).toBe(6);
    expect((await propose(cluster)).moves).toEqual([]);
    expect(
      cluster.state
        .view()
        .events()
        .map(({ message }) => message),
    ).toContain('2 replicas of default/web move to other nodes');
  });

  it('proposes at most the requested number of moves', async () => {
    const cluster = await startUneven();
    expect((await propose(cluster, 1)).moves).toHaveLength(1);
  });

  it('gives up moves that are not possible within 10 minutes', async () => {
    const cluster = await startUneven();
    const proposal = await propose(cluster);
    const plan = await planMoves(cluster, proposal);
    for (const number of [3, 4, 5, 6]) cluster.agents.get(`node-${number}`)!.disconnect();
    for (const number of [1, 2])
      await cluster.complete(() => cluster.client.cordonNode({ nodeId: `node-${number}` }));
    const current = await planMoves(cluster, proposal);
    expect(current.workloads[0]?.unplaced).toBeGreaterThan(0);
    await expect(
      cluster.complete(() => cluster.client.executePlan({ id: plan.id })),
    ).rejects.toThrow(/is outdated/);
    await cluster.complete(() => cluster.client.executePlan({ id: current.id }));
    await cluster.advance(5_000, 50);
    expect((await readWeb(cluster)).status).toMatchObject({ readyReplicas: 6 });
    await cluster.advance(610_000, 500);
    expect((await readWeb(cluster)).status).toMatchObject({
      ...{ readyReplicas: 6, totalReplicas: 6 },
    });
  });

  it('refuses replicas that do not run, and a workload in mode GLOBAL', async () => {
    const cluster = await startUneven();
    const evict = (name: string, replicaIds: readonly string[]) =>
      cluster.complete(() =>
        cluster.client.createPlan({
          changes: [{ change: { case: 'evict', value: { name, replicaIds: [...replicaIds] } } }],
        }),
      );
    await expect(evict('web', ['nothing-1'])).rejects.toThrow(
      'workload "default/web" has no running replica "nothing-1"',
    );
    await cluster.complete(() =>
      cluster.client.createWorkload({ name: 'agent', spec: { command: ['serve'], mode: 1 } }),
    );
    await expect(evict('agent', ['agent-1'])).rejects.toThrow('has mode GLOBAL');
  });
});
