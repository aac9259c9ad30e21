import type { MessageInitShape } from '@bufbuild/protobuf';
import type { SimulateClusterRequestSchema, SimulateClusterResponse } from '@cloudless/api';
import { startCluster } from '../test-cluster/web-workload.js';
import type { TestCluster } from '../index.js';

const WORKLOADS = {
  web: { replicas: 7, rollout: { minAvailable: 6 } },
  batch: { replicas: 4, priority: 10, resources: { requests: { cpuMillis: 1_500 } } },
  db: {
    replicas: 3,
    priority: 90,
    resources: { requests: { cpuMillis: 2_000 } },
    placement: { spread: { topology: 'zone', mode: 1 } },
  },
  agent: { mode: 1 },
} as const;

/** Starts 6 nodes in 3 zones with workloads of different priorities, sizes and modes. */
async function startFullCluster(): Promise<TestCluster> {
  const cluster = await startCluster(6);
  for (const [name, spec] of Object.entries(WORKLOADS))
    await cluster.complete(() =>
      cluster.client.createWorkload({ name, spec: { command: ['serve'], ...spec } }),
    );
  await cluster.advance(5_000);
  return cluster;
}

const simulate = (
  cluster: TestCluster,
  request: MessageInitShape<typeof SimulateClusterRequestSchema>,
): Promise<SimulateClusterResponse> =>
  cluster.complete(() => cluster.client.simulateCluster(request));

/** Returns the nodes of the replicas that run, or are to run: `web node-1`, sorted. */
function listPlacements(cluster: TestCluster): readonly string[] {
  const view = cluster.state.view();
  return [...view.replicas()]
    .map(({ value }) => value)
    .filter(
      ({ desiredRunning, lost, phase, nodeId }) =>
        desiredRunning && !lost && phase <= 4 && nodeId !== '',
    )
    .map(({ uid, nodeId }) => `${view.workload(uid)?.value.name} ${nodeId}`)
    .sort();
}

/** Returns the placements as they are after the moves of a prediction. */
function applyMoves(
  placements: readonly string[],
  { moves }: SimulateClusterResponse,
): readonly string[] {
  const result = [...placements];
  for (const { name, fromNodeId, toNodeId } of moves) {
    if (fromNodeId !== '') result.splice(result.indexOf(`${name} ${fromNodeId}`), 1);
    if (toNodeId !== '') result.push(`${name} ${toNodeId}`);
  }
  return result.sort();
}

const loseNodes = async (cluster: TestCluster, ...nodeIds: readonly string[]): Promise<void> => {
  for (const nodeId of nodeIds) cluster.agents.get(nodeId)!.sendsPings = false;
  await cluster.advance(20_000, 50);
};

describe('a simulation of the whole cluster', () => {
  it.each([
    {
      name: 'a node is lost',
      changes: [{ change: { case: 'loseNode', value: 'node-2' } }] as const,
      act: (cluster: TestCluster) => loseNodes(cluster, 'node-2'),
    },
    {
      name: 'a zone is lost, with too little capacity for all replicas',
      changes: [{ change: { case: 'loseZone', value: 'zone-1' } }] as const,
      act: (cluster: TestCluster) => loseNodes(cluster, 'node-1', 'node-4'),
    },
    {
      name: 'a node is drained',
      changes: [{ change: { case: 'drainNode', value: 'node-3' } }] as const,
      act: async (cluster: TestCluster) => {
        await cluster.complete(() => cluster.client.drainNode({ nodeId: 'node-3' }));
        await cluster.advance(60_000, 50);
      },
    },
    {
      name: 'a workload is scaled',
      changes: [{ change: { case: 'scale', value: { name: 'web', replicas: 20 } } }] as const,
      act: async (cluster: TestCluster) => {
        await cluster.complete(() => cluster.client.scaleWorkload({ name: 'web', replicas: 20 }));
        await cluster.advance(20_000, 50);
      },
    },
  ])('predicts what happens when $name', async ({ changes, act }) => {
    const cluster = await startFullCluster();
    const { revision } = cluster.state.view();
    const before = listPlacements(cluster);
    const prediction = await simulate(cluster, { changes: [...changes] });
    expect(cluster.state.view().revision).toBe(revision);
    let lowestWeb = Infinity;
    cluster.state.subscribe(() => {
      const { status } = cluster.controllers.presenter.present(
        cluster.state.view().workloadByName('default', 'web')!.value,
        false,
      );
      lowestWeb = Math.min(lowestWeb, status?.readyReplicas ?? 0);
    });
    await act(cluster);
    expect(listPlacements(cluster)).toEqual(applyMoves(before, prediction));
    expect([...cluster.state.view().unplaced()]).toHaveLength(prediction.waitingAfter);
    const web = prediction.workloads.find(({ name }) => name === 'web');
    expect(web?.minAvailable).toBe(6);
    expect(Math.min(lowestWeb, web?.readyBefore ?? 0)).toBe(web?.floor);
  });

  it('predicts the victims of a workload of high priority, and where their replacements go', async () => {
    const cluster = await startFullCluster();
    const before = listPlacements(cluster);
    const resources = { requests: { cpuMillis: 3_500 } };
    const vip = {
      name: 'vip',
      spec: { command: ['serve'], replicas: 2, priority: 300, resources },
    };
    const prediction = await simulate(cluster, {
      changes: [{ change: { case: 'apply', value: vip } }],
    });
    expect(prediction.workloads.some(({ preempted }) => preempted > 0)).toBe(true);
    await cluster.complete(() => cluster.client.createWorkload(vip));
    await cluster.advance(30_000, 50);
    expect(listPlacements(cluster)).toEqual(applyMoves(before, prediction));
    expect([...cluster.state.view().unplaced()]).toHaveLength(prediction.waitingAfter);
  });

  it('predicts the same from an older revision as at that revision', async () => {
    const cluster = await startFullCluster();
    const { revision } = cluster.state.view();
    const changes = [{ change: { case: 'loseZone', value: 'zone-2' } }] as const;
    const then = await simulate(cluster, { changes: [...changes] });
    await cluster.complete(() => cluster.client.deleteWorkload({ name: 'batch' }));
    await cluster.advance(20_000, 50);
    const now = await simulate(cluster, { changes: [...changes], revision });
    expect(now).toEqual(then);
    expect(await simulate(cluster, { changes: [...changes] })).not.toEqual(then);
  });

  it('changes nothing without changes', async () => {
    const cluster = await startFullCluster();
    const result = await simulate(cluster, {});
    expect(result).toMatchObject({ moves: [], workloads: [], waitingAfter: 0 });
    expect(result.after).toEqual(result.before);
  });
});
