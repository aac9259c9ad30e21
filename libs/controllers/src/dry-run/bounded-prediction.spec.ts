import { PlanOutcome_Kind as OutcomeKind, Rollout_Strategy as Strategy } from '@cloudless/api';
import { runAtOnce } from '@cloudless/base';
import { TestBed, aSpec } from '../testing/test-bed.js';
import { DryRunCluster } from './dry-run-cluster.js';
import { PlacementBudget } from './placement-budget.js';
import { putPredictedWorkload } from './predicted-workload.js';
import type { DryRunResult } from './dry-run-result.js';
import { simulateRollout } from './simulate-rollout.js';

interface SpecInit {
  readonly replicas?: number;
  readonly rollout?: {
    readonly strategy?: Strategy;
    readonly minAvailable?: number;
    readonly maxSurge?: number;
    readonly maxUnavailable?: number;
  };
}

let bed: TestBed;

beforeEach(async () => {
  bed = await TestBed.open({ nodes: ['node-1', 'node-2'] });
});
afterEach(() => bed.close());

/** Predicts the creation of a workload with at most `newReplicas` simulated replicas. */
function predict(spec: SpecInit, newReplicas: number): DryRunResult {
  const deps = bed.dependencies({});
  const limits = { slice: 20_000, total: 20_000, newReplicas };
  const cluster = new DryRunCluster(deps, new PlacementBudget(2, limits));
  const view = bed.state.view();
  const subject = {
    namespace: 'default',
    name: 'web',
    current: view.workloadByName('default', 'web')?.value,
    spec: aSpec({ resources: { requests: { cpuMillis: 1_000 } }, ...spec }),
  };
  const { workload } = putPredictedWorkload(cluster, view, subject, bed.clock.wallTime());
  return runAtOnce(simulateRollout(cluster, deps, workload));
}

/**
 * The part of a prediction that a user sees: a plan with waiting replicas shows no other reason.
 */
const shownOf = ({ steps, omittedSteps, stuckReason, ...rest }: DryRunResult) => ({
  ...rest,
  suggestChange: rest.suggestChange(),
  stuckReason: rest.unplaced > 0 ? undefined : stuckReason,
  totalSteps: steps.length + omittedSteps,
  blockedStep: steps.find(({ blocked }) => blocked === true),
});

describe('prediction of a bounded number of new replicas', () => {
  const rollouts: readonly SpecInit[] = [
    {},
    { rollout: { strategy: Strategy.RECREATE } },
    { rollout: { strategy: Strategy.BLUE_GREEN } },
    { rollout: { minAvailable: 3, maxSurge: 0 } },
    { rollout: { maxUnavailable: 5, maxSurge: 4 } },
  ];

  it.each(rollouts)('equals the unbounded prediction when replicas wait: %j', (rollout) => {
    for (const replicas of [20, 30, 47])
      for (const bound of [12, 16, 50])
        expect(shownOf(predict({ replicas, ...rollout }, bound))).toEqual(
          shownOf(predict({ replicas, ...rollout }, 1_000)),
        );
  });

  it('equals the unbounded prediction of a scaled workload when replicas wait', async () => {
    await bed.createWorkload({ replicas: 2, resources: { requests: { cpuMillis: 1_000 } } });
    for (const bound of [12, 25])
      expect(shownOf(predict({ replicas: 40 }, bound))).toEqual(
        shownOf(predict({ replicas: 40 }, 1_000)),
      );
  });

  it('counts the other replicas as not predicted when every simulated replica finds a node', () => {
    const result = predict({ replicas: 10 }, 2);
    expect(result).toMatchObject({
      unplaced: 0,
      notPredicted: 8,
      highestLive: 10,
      minAvailable: 9,
      outcome: { kind: OutcomeKind.COMPLETES, ready: 10, updated: 10, desired: 10 },
    });
    expect(result.placements).toHaveLength(2);
  });
});
