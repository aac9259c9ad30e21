import { create } from '@bufbuild/protobuf';
import { WorkloadSpecSchema } from '@cloudless/api';
import type { WorkloadRecord } from '@cloudless/api/store';
import { predictRollout, type RolloutObserved } from '@cloudless/rollout';
import { resolveSpecLimits } from '../rollout/rollout-input.js';
import { countRefused, predictCounted, putCountedReplicas } from './counted-replicas.js';
import type { DryRunCluster } from './dry-run-cluster.js';
import type { DryRunResult } from './dry-run-result.js';
import { findMoveWait } from './move-wait.js';
import { countNotPredicted, describeNotPredicted, type NotPredicted } from './not-predicted.js';
import { countServing, describeOutcome } from './plan-outcome.js';
import type { RolloutSimulation } from './rollout-simulation.js';

/**
 * Summarizes the simulation of a rollout that has ended as the prediction for the whole workload,
 * and adds the replicas that were only counted to the simulated cluster again.
 */
export function summarizeRollout(
  cluster: DryRunCluster,
  workload: WorkloadRecord,
  simulation: RolloutSimulation,
): DryRunResult {
  const { first, steps, placement, counted, state, settings, stuckReason } = simulation;
  const { observed } = first;
  const last = simulation.observe();
  putCountedReplicas(cluster, workload.uid, counted);
  const unplaced = placement.unplaced.length;
  const predicted = predictCounted(counted, { unplaced, stuck: stuckReason !== undefined });
  const { readyCreated, readyWaiting, replaced } = predicted;
  const { preempted } = placement;
  const notPredicted: NotPredicted = {
    replacedLater: counted.replacedLater.length,
    beyondNew: readyCreated + readyWaiting,
    beyondEvaluations: placement.notPredicted,
  };
  return {
    steps,
    omittedSteps: counted.created + counted.stopping.length + 2 * replaced,
    placements: placement.placements,
    unplaced: unplaced + predicted.unplaced,
    waitedBefore: placement.countWaitedBefore() + (unplaced === 0 ? 0 : countRefused(counted)),
    unplacedReason: unplaced === 0 ? '' : placement.reason,
    suggestChange: () => (placement.unplaced.length === 0 ? '' : placement.suggestChange()),
    preempts: preempted.describe((uid) => cluster.view.workload(uid)?.value),
    preempted: preempted.count,
    victims: preempted.byWorkload,
    notPredicted: countNotPredicted(notPredicted),
    notPredictedReason: describeNotPredicted(notPredicted, {
      simulated: simulation.simulatedCount,
      newReplicas: cluster.budget.maxNewReplicas,
      evaluations: cluster.budget.maxEvaluations,
    }),
    ...findExtremes(simulation),
    minAvailable: resolveMinAvailable(workload, simulation, last.want + counted.created),
    readyBefore: countServing(observed),
    stuckReason,
    moveWaitReason: findMoveWait(workload, observed, first.decision),
    outcome: describeOutcome({
      ...{ observed: last, state, settings, unplaced, stuckReason },
      omitted: counted.created,
      assumedReady: readyCreated,
      alsoUpdated: counted.staying.length + readyWaiting + replaced,
    }),
  };
}

/** Finds the fewest ready and the most live replicas, the counted ones included. */
function findExtremes({
  first,
  steps,
  counted: { created },
  stepsWhileStopping,
}: RolloutSimulation): Pick<DryRunResult, 'lowestReady' | 'highestLive'> {
  const last = steps.at(-1);
  if (last === undefined) {
    const { lowestAvailable, highestLive } = predictRollout(first.observed);
    return { lowestReady: lowestAvailable, highestLive: highestLive + created };
  }
  let [lowestReady, highestLive] = [last.ready, last.live];
  for (const [index, { ready, live, blocked }] of steps.entries()) {
    lowestReady = Math.min(lowestReady, ready);
    if (blocked === true) continue;
    // A counted replica is created after the replica that it replaces has stopped.
    const existing = index < stepsWhileStopping ? 0 : created;
    highestLive = Math.max(highestLive, live + existing);
  }
  return { lowestReady, highestLive };
}

/**
 * Returns the `min_available` of the whole workload. The first decision has it, unless the update
 * stops counted replicas: then the simulated replicas have limits of their own.
 */
function resolveMinAvailable(
  { spec = create(WorkloadSpecSchema) }: WorkloadRecord,
  {
    first,
    counted,
  }: { readonly first: { readonly observed: RolloutObserved } } & Pick<
    RolloutSimulation,
    'counted'
  >,
  desired: number,
): number {
  return counted.stopping.length === 0
    ? first.observed.minAvailable
    : resolveSpecLimits(spec, desired).minAvailable;
}
