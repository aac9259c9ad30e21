import { NodeStatus_Phase as NodePhase } from '@cloudless/api';
import type { Clock } from '@cloudless/base';
import { createCluster } from '@cloudless/scheduler';
import { NodeDirectory } from '../node/node-directory.js';
import { ClusterModel } from '../placement/cluster-model.js';
import { ReadinessTracker } from '../rollout/readiness-tracker.js';
import { LEASE_MS, TestBed, aSpec } from '../testing/test-bed.js';
import { createRecordSource } from '../what-if/record-source.js';
import { simulateCluster } from '../what-if/cluster-simulation.js';
import { WorkloadPresenter } from '../workload/workload-presenter.js';
import { DryRunService } from './dry-run-service.js';

let bed: TestBed;

beforeEach(async () => {
  bed = await TestBed.open({ nodes: ['node-1', 'node-2', 'node-3'] });
});
afterEach(() => bed.close());

/** The controllers of a new leader over the records of the bed, before any agent has connected. */
function startNewLeader(): { readonly nodes: NodeDirectory; readonly dryRun: DryRunService } {
  const { state, log } = bed;
  const clock: Clock = bed.clock;
  const nodes = bed.use(new NodeDirectory({ clock, log, leaseMs: LEASE_MS }));
  nodes.start([...state.view().nodes()].map(({ value }) => value));
  const cluster = createCluster();
  bed.use(new ClusterModel({ state, nodes, cluster }));
  const readiness = bed.use(new ReadinessTracker(state, nodes, clock));
  const presenter = new WorkloadPresenter(state, nodes, { cluster, clock });
  const sources = { state, nodes, clock, cluster, readiness, presenter };
  return { nodes, dryRun: new DryRunService(sources) };
}

const planWeb = (dryRun: DryRunService, replicas: number) =>
  dryRun.predictAtOnce((planner) =>
    planner.planChange({
      namespace: 'default',
      name: 'web',
      current: bed.state.view().workloadByName('default', 'web')?.value,
      spec: aSpec({ replicas, resources: { requests: { cpuMillis: 3_000 } } }),
    }),
  );

describe('predictions of a new leader that waits for the agents', () => {
  it('places replicas on nodes that are expected to connect', () => {
    const { dryRun } = startNewLeader();
    expect(planWeb(dryRun, 3)).toMatchObject({ unplaced: 0, totalPlacements: 3, warnings: [] });
  });

  it('counts the capacity of expected nodes', () => {
    const { dryRun } = startNewLeader();
    expect(planWeb(dryRun, 4).warnings).toEqual([
      '1 replica would find no node: needs 3 CPU, more than is free: 3 of 3 nodes',
    ]);
  });

  it('counts ready replicas on expected nodes as available', async () => {
    const spec = { resources: { requests: { cpuMillis: 3_000 } } };
    await bed.createWorkload({ replicas: 2, ...spec });
    await bed.addReplicas(2, (index) => ({ nodeId: `node-${index + 1}` }));
    const { dryRun } = startNewLeader();
    expect(planWeb(dryRun, 3)).toMatchObject({ readyBefore: 2, unplaced: 0, warnings: [] });
  });

  it('explains expected nodes as fitting', async () => {
    await bed.createWorkload({ replicas: 1 });
    const { dryRun } = startNewLeader();
    const { nodes, summary } = dryRun.explain(bed.workload());
    expect(nodes.map(({ fits }) => fits)).toEqual([true, true, true]);
    expect(summary).toContain('3 of 3 nodes would take one more');
  });

  it('refuses when the leases have ended, and says since when no agent connected', async () => {
    const { nodes, dryRun } = startNewLeader();
    // A new leader trusts the nodes for 2 s longer than a lease.
    await bed.advance(LEASE_MS + 2_200);
    expect(nodes.status('node-1')).toMatchObject({
      phase: NodePhase.LOST,
      reason: expect.stringMatching(/^its agent has not connected to this coordinator, .* 5\.\ds$/),
    });
    expect(planWeb(dryRun, 1).warnings).toEqual([
      '1 replica would find no node: lost: 3 of 3 nodes',
    ]);
  });

  it('refuses a node whose loss an earlier leader has recorded', async () => {
    for (const id of ['node-1', 'node-2', 'node-3']) await bed.changeNode(id, { lost: true });
    const { dryRun } = startNewLeader();
    expect(planWeb(dryRun, 1).warnings).toEqual([
      '1 replica would find no node: lost: 3 of 3 nodes',
    ]);
  });

  it('counts expected nodes in a simulation of the cluster', async () => {
    const { nodes } = startNewLeader();
    const view = bed.state.view();
    const source = createRecordSource(
      {
        revision: view.revision,
        nodes: [...view.nodes()].map(({ value }) => value),
        ...{ workloads: [], versions: [], controls: [], replicas: [] },
      },
      { clock: bed.clock, getStatus: (id) => nodes.status(id) },
    );
    const steps = simulateCluster(source, {
      ...{ nodes: [], addedNodes: [], deletions: [] },
      workloads: [
        { namespace: 'default', name: 'web', current: undefined, spec: aSpec({ replicas: 1 }) },
      ],
    });
    let next = steps.next();
    while (next.done !== true) next = steps.next();
    expect(next.value.before?.total?.nodes).toBe(3);
  });
});
