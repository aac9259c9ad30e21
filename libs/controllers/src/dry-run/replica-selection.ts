import { create } from '@bufbuild/protobuf';
import { WorkloadSpecSchema, withDefaults } from '@cloudless/api';
import type { ReplicaRecord, WorkloadRecord } from '@cloudless/api/store';
import type {
  RolloutLimits,
  RolloutObserved,
  RolloutSettings,
  RolloutState,
} from '@cloudless/rollout';
import { countStillWanted } from '../replica/finished.js';
import { isGlobal } from '../rollout/global-targets.js';
import { resolveSpecLimits } from '../rollout/rollout-input.js';
import type { CountedReplicas } from './counted-replicas.js';
import type { DryRunCluster } from './dry-run-cluster.js';
import { DryRunPlacement } from './dry-run-placement.js';
import { groupReplicas, isExisting, sortBySequence, type ReplicaGroups } from './replica-groups.js';

/**
 * The replicas of a workload, divided into those that a prediction simulates one by one, and those
 * that the prediction only counts.
 */
export interface ReplicaSelection {
  readonly simulated: readonly ReplicaRecord[];
  readonly counted: CountedReplicas;
}

/** A rollout before the first decision about a change. */
export interface RolloutStart {
  readonly state: RolloutState;
  readonly settings: RolloutSettings;
  /** Wall-clock milliseconds. */
  readonly nowMs: number;
}

/**
 * Returns true when a prediction may simulate only some replicas of the workload: the workload has
 * very many, and its change is a rolling update without canary steps that is neither paused nor
 * failed. For any other change, each replica may matter for the next decision.
 * @param existing - Number of all replicas of the workload.
 */
export function maySelectSome(
  cluster: DryRunCluster,
  workload: WorkloadRecord,
  { state, settings }: RolloutStart,
  existing: number,
): boolean {
  return (
    existing > cluster.budget.maxSimulated &&
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
 * Returns true when the first decision is about a rolling update that replaces all replicas. Only
 * then is a prediction right that simulates some of them: see {@link maySelectSome}, which decides
 * before the rollout state takes the change in.
 */
export function isUpdateOfAll({ strategy, paused, globalTargets }: RolloutObserved): boolean {
  return (
    paused !== true &&
    globalTargets === undefined &&
    strategy?.kind === 'rollingUpdate' &&
    strategy.updated === undefined
  );
}

/** Selects all replicas of a workload. Only new replicas above the budget are counted. */
export function selectAll(
  cluster: DryRunCluster,
  workload: WorkloadRecord,
  replicas: readonly ReplicaRecord[],
): ReplicaSelection {
  const desired = countDesired(cluster, workload, replicas);
  const missing = desired - replicas.filter(isExisting).length;
  return {
    simulated: replicas,
    counted: { ...NONE, created: countCreated(cluster, workload, missing) },
  };
}

/**
 * Selects some replicas of a workload for which {@link maySelectSome} returns true.
 * @returns The selection. Yields whenever other work should run.
 */
export function* selectSome(
  cluster: DryRunCluster,
  workload: WorkloadRecord,
  replicas: readonly ReplicaRecord[],
  nowMs: number,
): Generator<void, ReplicaSelection> {
  const { view, readiness } = cluster;
  const groups = yield* groupReplicas({ view, readiness, nowMs }, workload, replicas);
  const spec = withDefaults(workload.spec ?? NO_SPEC);
  const desired = Math.max(0, (spec.replicas ?? 0) - groups.finished);
  const created = countCreated(cluster, workload, desired - groups.existing);
  const limits = resolveSpecLimits(workload.spec ?? NO_SPEC, desired);
  const selection = replacesOnlyWaiting(cluster, workload, groups)
    ? selectOfWaiting(cluster, groups, limits)
    : selectOfGroups(cluster, groups, limits);
  const { counted } = selection;
  return {
    ...selection,
    // Each counted replica that stops has a replacement, which is counted too.
    counted: { ...counted, created: created + counted.stopping.length },
  };
}

/** Returns the number of replicas of a workload that have to run. */
export function countDesired(
  { view }: DryRunCluster,
  workload: WorkloadRecord,
  replicas: readonly ReplicaRecord[],
): number {
  const spec = withDefaults(workload.spec ?? NO_SPEC);
  return countStillWanted(view, workload, replicas, spec.replicas ?? 0);
}

/**
 * Takes the missing replicas from the budget of the plan.
 * @returns The number of new replicas beyond the budget, which are counted and not simulated.
 */
function countCreated(
  { budget }: DryRunCluster,
  { spec }: WorkloadRecord,
  missing: number,
): number {
  // The targets of a GLOBAL workload are nodes, so their number is bounded by the cluster.
  if (isGlobal(spec) || missing <= 0) return 0;
  return missing - budget.consumeNewReplicas(missing);
}

/**
 * Returns true when all live replicas have other versions and wait, and no node fits any of them
 * before the update stops them.
 */
function replacesOnlyWaiting(
  cluster: DryRunCluster,
  workload: WorkloadRecord,
  { available, waiting, outdated, outdatedWaiting, liveOthers }: ReplicaGroups,
): boolean {
  if (available.length + waiting.length + outdated.length + liveOthers > 0) return false;
  const placement = new DryRunPlacement(cluster, workload, []);
  const versions = new Set(outdatedWaiting.map(({ version }) => version));
  return ![...versions].some((version) => placement.isPlaceable(version));
}

/** Selects replicas of a workload that {@link replacesOnlyWaiting}, of which the newest. */
function selectOfWaiting(
  { budget }: DryRunCluster,
  { others, outdatedWaiting }: ReplicaGroups,
  limits: RolloutLimits,
): ReplicaSelection {
  const replaced = Math.min(outdatedWaiting.length, limits.want);
  const created = budget.consumeNewReplicas(
    Math.min(replaced, countReplacedAtLeast(budget, limits)),
  );
  const [stopping, rest] = splitAt(outdatedWaiting, replaced - created);
  return {
    simulated: sortBySequence([...others, ...rest]),
    counted: { ...NONE, stopping },
  };
}

/**
 * Selects replicas of each group: those that the rollout planner decides about, and of those that
 * follow in the same way, enough to show what happens to the others.
 */
function selectOfGroups(
  { budget }: DryRunCluster,
  groups: ReplicaGroups,
  limits: RolloutLimits,
): ReplicaSelection {
  const { others, outdatedWaiting } = groups;
  const current = groups.available.length + groups.waiting.length + groups.othersOfVersion;
  // The rollout planner stops the surplus in disruption order: waiting replicas, then the newest.
  const surplus = Math.max(0, current - limits.want);
  // At least one waiting replica shows whether a node fits the others.
  const simulatedWaiting = Math.max(surplus, countSimulated(budget));
  const [waiting, selectedWaiting] = splitAtEnd(groups.waiting, simulatedWaiting);
  const [staying, selectedAvailable] = splitAtEnd(groups.available, surplus);
  const later = Math.min(
    groups.outdated.length - countReplacedAtLeast(budget, limits),
    // Each replica to be replaced later keeps one of the wanted places.
    limits.want - current - countTwoBatches(limits),
  );
  const [replacedLater, selectedOutdated] = splitAt(groups.outdated, Math.max(0, later));
  return {
    simulated: sortBySequence([
      ...[...others, ...selectedAvailable, ...selectedWaiting],
      ...[...selectedOutdated, ...outdatedWaiting],
    ]),
    counted: { ...NONE, staying, replacedLater, waiting },
  };
}

const countSimulated = ({ maxSimulated }: DryRunCluster['budget']): number =>
  Math.max(1, maxSimulated);

/** Returns the fewest replicas of other versions whose replacement is simulated. */
function countReplacedAtLeast(budget: DryRunCluster['budget'], limits: RolloutLimits): number {
  return Math.max(countSimulated(budget), countTwoBatches(limits));
}

/**
 * Returns the number of replicas in two batches with their surge. A rollout that has replaced so
 * many replaces all further replicas in the same way.
 */
function countTwoBatches({ batch, maxSurge }: RolloutLimits): number {
  return 2 * (batch + maxSurge);
}

function splitAt<Item>(
  items: readonly Item[],
  index: number,
): readonly [readonly Item[], readonly Item[]] {
  return [items.slice(0, index), items.slice(index)];
}

/** @param count - Number of items in the second part, if there are as many. */
const splitAtEnd = <Item>(items: readonly Item[], count: number) =>
  splitAt(items, Math.max(0, items.length - count));

const NO_SPEC = create(WorkloadSpecSchema);
const NONE: CountedReplicas = {
  ...{ staying: [], replacedLater: [], waiting: [], stopping: [], created: 0 },
};
