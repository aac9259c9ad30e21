import { create } from '@bufbuild/protobuf';
import { WorkloadSpecSchema, withDefaults } from '@cloudless/api';
import type { ReplicaRecord, WorkloadRecord } from '@cloudless/api/store';
import {
  predictRollout,
  type RolloutObserved,
  type RolloutSettings,
  type RolloutState,
} from '@cloudless/rollout';
import { countStillWanted } from '../replica/finished.js';
import { isGlobal } from '../rollout/global-targets.js';
import { resolveSpecLimits } from '../rollout/rollout-input.js';
import type { DryRunCluster } from './dry-run-cluster.js';
import { DryRunPlacement } from './dry-run-placement.js';
import type { DryRunStep } from './dry-run-result.js';
import {
  chooseSimulatedPart,
  groupReplicas,
  isExisting,
  simulateAll,
  sortBySequence,
  type SimulatedPart,
} from './simulated-part.js';

/** The replicas with which a prediction begins. */
export interface PredictionStart {
  readonly part: SimulatedPart;
  /** Number of new replicas that are counted, and not simulated. */
  readonly omitted: number;
}

/** Returns false when any replica may matter for a decision, whatever the number of replicas. */
export function mayLeaveOut(
  cluster: DryRunCluster,
  workload: WorkloadRecord,
  rollout: { readonly state: RolloutState; readonly settings: RolloutSettings },
): boolean {
  const { state, settings } = rollout;
  return (
    !isGlobal(workload.spec) &&
    workload.deletionRequestedAt === undefined &&
    settings.strategy === 'rollingUpdate' &&
    settings.canarySteps.length === 0 &&
    state.strategy === 'rollingUpdate' &&
    state.phase !== 'failed' &&
    cluster.view.control(workload.uid)?.value.pausedVersion !== workload.version
  );
}

/**
 * Returns true for a rolling update of all replicas that may stop and start now: a prediction may
 * simulate only a part of them.
 */
export function isUpdateOfAll({ strategy, paused, globalTargets }: RolloutObserved): boolean {
  return (
    paused !== true &&
    globalTargets === undefined &&
    strategy?.kind === 'rollingUpdate' &&
    strategy.updated === undefined
  );
}

/** Chooses the replicas of a large workload to simulate. Reads every replica once. */
export function leaveOutReplicas(
  cluster: DryRunCluster,
  workload: WorkloadRecord,
  replicas: readonly ReplicaRecord[],
  nowMs: number,
): PredictionStart {
  const { view, readiness, budget } = cluster;
  const groups = groupReplicas({ view, readiness, nowMs }, workload, replicas);
  const spec = workload.spec ?? create(WorkloadSpecSchema);
  const desired = Math.max(0, (withDefaults(spec).replicas ?? 0) - groups.finished);
  const omitted = omitNewReplicas(cluster, workload, desired - groups.existing);
  const placement = new DryRunPlacement(cluster, workload, []);
  const part = chooseSimulatedPart(groups, resolveSpecLimits(spec, desired), budget, (version) =>
    placement.isPlaceable(version),
  );
  return { part, omitted: omitted + part.stopping.length };
}

/** Simulates every existing replica. */
export function includeReplicas(
  cluster: DryRunCluster,
  workload: WorkloadRecord,
  replicas: readonly ReplicaRecord[],
): PredictionStart {
  const existing = replicas.filter(isExisting);
  const desired = countDesired(cluster, workload, replicas);
  const omitted = omitNewReplicas(cluster, workload, desired - existing.length);
  return { part: simulateAll(replicas), omitted };
}

/** Returns the number of new replicas above the budget of the plan. */
function omitNewReplicas(
  { budget }: DryRunCluster,
  { spec }: WorkloadRecord,
  missing: number,
): number {
  // The targets of a GLOBAL workload are nodes, so their number is bounded by the cluster.
  if (isGlobal(spec) || missing <= 0) return 0;
  return missing - budget.consumeNewReplicas(missing);
}

/** Returns the number of replicas of a workload that have to run. */
export function countDesired(
  { view }: DryRunCluster,
  workload: WorkloadRecord,
  replicas: readonly ReplicaRecord[],
): number {
  const spec = withDefaults(workload.spec ?? create(WorkloadSpecSchema));
  return countStillWanted(view, workload, replicas, spec.replicas ?? 0);
}

/**
 * Places the replicas that waited before the change. Of those that are not simulated, as many as the
 * budget allows take part; they are simulated from then on when a node fits them.
 * @param waiting - The simulated ones.
 */
export function placeWaiting(
  { budget }: DryRunCluster,
  placement: DryRunPlacement,
  { part, waiting }: { readonly part: SimulatedPart; readonly waiting: readonly ReplicaRecord[] },
  observed: RolloutObserved,
): { readonly placed: readonly ReplicaRecord[]; readonly part: SimulatedPart } {
  const count = budget.consumeNewReplicas(part.waiting.length);
  if (count === 0) return { placed: placement.placeReplicas(waiting, observed), part };
  const others = part.waiting.slice(part.waiting.length - count);
  const placed = placement.placeReplicas(sortBySequence([...others, ...waiting]), observed);
  const simulatedIds = new Set(waiting.map(({ id }) => id));
  placement.unplaced = placement.unplaced.filter(({ id }) => simulatedIds.has(id));
  const placedIds = new Set(placed.map(({ id }) => id));
  const stillWaiting = part.waiting.filter(({ id }) => !placedIds.has(id));
  return { placed, part: { ...part, waiting: stillWaiting } };
}

/**
 * Returns the numbers of the replicas that a decision only counts.
 * @param assumedReady - True when the waiting ones are assumed to be ready.
 */
export function countLeftOut(
  { staying, replacedLater, waiting }: SimulatedPart,
  assumedReady: boolean,
): Pick<RolloutObserved, 'waiting' | 'alsoAvailable'> {
  const available = staying.length + replacedLater.length + (assumedReady ? waiting.length : 0);
  const stillWaiting = assumedReady ? 0 : waiting.length;
  return {
    ...(available === 0 ? {} : { alsoAvailable: available }),
    ...(stillWaiting === 0 ? {} : { waiting: stillWaiting }),
  };
}

/** Returns how many of some waiting replicas the placer had refused before the change. */
export function countRefused(waiting: readonly ReplicaRecord[]): number {
  let refused = 0;
  for (const { reason } of waiting) if (reason !== '') refused += 1;
  return refused;
}

/** Adds the replicas that were not simulated to the simulated cluster again. */
export function putBackReplicas(
  cluster: DryRunCluster,
  uid: string,
  { staying, replacedLater, waiting }: SimulatedPart,
): void {
  if (staying.length + replacedLater.length + waiting.length === 0) return;
  const simulated = cluster.replicasOf(uid);
  cluster.setReplicas(uid, [...staying, ...replacedLater, ...waiting, ...simulated]);
}

/**
 * Finds the fewest ready and the most live replicas of a prediction.
 * @param observed - At the begin; counts for a workload that needs no step.
 * @param stepsWhileStopping - Number of first steps before which no omitted replica is created.
 */
export function findExtremes(
  steps: readonly DryRunStep[],
  observed: RolloutObserved,
  {
    omitted,
    stepsWhileStopping,
  }: { readonly omitted: number; readonly stepsWhileStopping: number },
): { readonly lowestReady: number; readonly highestLive: number } {
  const last = steps.at(-1);
  if (last === undefined) {
    const { lowestAvailable, highestLive } = predictRollout(observed);
    return { lowestReady: lowestAvailable, highestLive: highestLive + omitted };
  }
  let [lowestReady, highestLive] = [last.ready, last.live];
  for (const [index, { ready, live, blocked }] of steps.entries()) {
    lowestReady = Math.min(lowestReady, ready);
    if (blocked !== true)
      highestLive = Math.max(highestLive, live + (index < stepsWhileStopping ? 0 : omitted));
  }
  return { lowestReady, highestLive };
}

/**
 * Returns the `min_available` of the whole workload: the simulated part of a workload whose replicas
 * are all new has limits of its own.
 */
export function resolveMinAvailable(
  { spec = create(WorkloadSpecSchema) }: WorkloadRecord,
  { minAvailable }: RolloutObserved,
  { stopping }: SimulatedPart,
  desired: number,
): number {
  return stopping.length === 0 ? minAvailable : resolveSpecLimits(spec, desired).minAvailable;
}
