import { create } from '@bufbuild/protobuf';
import {
  RolloutStatus_Phase as Phase,
  Rollout_Strategy as Strategy,
  WorkloadSpecSchema,
} from '@cloudless/api';
import type { ControlRecord, WorkloadRecord } from '@cloudless/api/store';
import { isReadyEndpoint, toCanonicalVersion, type ClusterView } from '@cloudless/cluster-state';
import { DEFAULT_ENDPOINT_WEIGHT } from '@cloudless/network';
import { getStepSize } from '@cloudless/rollout';
import { resolveSpecLimits } from '../rollout/rollout-input.js';
import { toRolloutSettings } from '../rollout/rollout-state.js';

/**
 * The weight of each replica of a version, and of each other replica. Comparable within the workload
 * only: balancers divide the share of the workload in its service by them.
 */
export interface VersionWeights {
  /** The new version, or in a rollback the failed version. */
  readonly version: number;
  /** Weight of the replicas of {@link version}. */
  readonly newWeight: number;
  readonly otherWeight: number;
}

/** Sum of the weights of all replicas, divided by 100: fine steps for many replicas. */
const WEIGHT_PER_PERCENT = 10_000;

const MOVING: ReadonlySet<Phase> = new Set([Phase.IN_PROGRESS, Phase.PAUSED, Phase.FAILED]);

/** Returns true when a canary step of the workload gives a percentage of the connections. */
export function hasWeightedSteps({ spec }: Pick<WorkloadRecord, 'spec'>): boolean {
  return spec?.rollout?.steps.some(({ weightPercent }) => weightPercent !== undefined) ?? false;
}

/** Returns true while a workload returns to the version before one that failed. */
export function isRollingBack({ rollout, rolloutPhase }: ControlRecord): boolean {
  return (
    rollout !== undefined &&
    rollout.rollsBack !== 0 &&
    rollout.strategy !== Strategy.BLUE_GREEN &&
    MOVING.has(rolloutPhase)
  );
}

/**
 * Returns the weights of the replicas during a canary whose steps give percentages of the
 * connections; undefined while all replicas have the same share.
 *
 * A step that is reached gives exactly its percentage. On the way to a step, and from the last step
 * to the end, the percentage moves with the number of ready replicas of the new version, so that
 * neither version receives the connections of replicas that it does not have. A version without
 * ready replicas leaves all connections to the other one.
 *
 * In a rollback the failed version receives none while the ready replicas of other versions reach
 * `min_available`. Below that number it keeps what they miss, so that no replica receives more than
 * its part of `min_available`.
 */
export function computeVersionWeights(
  view: ClusterView,
  workload: WorkloadRecord,
): VersionWeights | undefined {
  const { uid } = workload;
  const control = view.control(uid)?.value;
  if (control === undefined) return undefined;
  const isRollback = isRollingBack(control);
  if (!isRollback && !hasWeightedSteps(workload)) return undefined;
  const named = isRollback ? (control.rollout?.rollsBack ?? 0) : workload.version;
  const version = toCanonicalVersion(view, uid, named);
  if (!isRollback && !isCanary(view, workload, control, version)) return undefined;
  let [newCount, otherCount] = [0, 0];
  for (const { value } of view.replicasOf(uid)) {
    if (!isReadyEndpoint(value)) continue;
    if (toCanonicalVersion(view, uid, value.version) === version) newCount += 1;
    else otherCount += 1;
  }
  if (newCount === 0 || otherCount === 0) return undefined;
  const percent = isRollback
    ? computeFailedPercent(workload, newCount, otherCount)
    : computePercent(workload, control, newCount);
  // The usual weight, so that each further ready replica changes one endpoint only.
  if (isRollback && percent === 0)
    return { version, newWeight: 0, otherWeight: DEFAULT_ENDPOINT_WEIGHT };
  return {
    version,
    newWeight: toWeight(percent, newCount),
    otherWeight: toWeight(100 - percent, otherCount),
  };
}

/** Canary steps apply to neither a first deployment nor a return to the previous template. */
function isCanary(
  view: ClusterView,
  { uid, version }: WorkloadRecord,
  { rollout, rolloutPhase }: ControlRecord,
  canonical: number,
): boolean {
  return (
    rollout?.version === version &&
    rollout.strategy === Strategy.ROLLING_UPDATE &&
    rollout.fromVersion !== 0 &&
    rollout.rollsBack === 0 &&
    MOVING.has(rolloutPhase) &&
    toCanonicalVersion(view, uid, rollout.fromVersion) !== canonical
  );
}

/** @param ready - Ready replicas of the new version. */
function computePercent(
  { spec = create(WorkloadSpecSchema) }: WorkloadRecord,
  { rollout }: ControlRecord,
  ready: number,
): number {
  const steps = spec.rollout?.steps ?? [];
  const { canarySteps } = toRolloutSettings(spec);
  const want = Math.max(1, spec.replicas ?? 1);
  const done = rollout?.stepsDone ?? 0;
  const at = (index: number): { readonly size: number; readonly percent: number } => {
    if (index < 0) return { size: 0, percent: 0 };
    if (index >= steps.length) return { size: want, percent: 100 };
    const size = getStepSize(canarySteps, index, want);
    return { size, percent: steps[index]?.weightPercent ?? (100 * size) / want };
  };
  const [before, next] = [at(done - 1), at(done)];
  if (rollout?.stepReachedAt !== undefined) return next.percent;
  const way = next.size - before.size;
  const progress = way <= 0 ? 0 : (ready - before.size) / way;
  return before.percent + (next.percent - before.percent) * Math.min(1, Math.max(0, progress));
}

/**
 * Returns the percentage of the connections that a failed version keeps: what the other replicas miss
 * for `min_available`, and at most the share of its own replicas.
 * @param failed - Ready replicas of the failed version, above 0.
 * @param other - Ready replicas of other versions, above 0.
 */
function computeFailedPercent(
  { spec = create(WorkloadSpecSchema) }: WorkloadRecord,
  failed: number,
  other: number,
): number {
  // A GLOBAL workload has no number of replicas in its spec.
  const want = spec.replicas ?? failed + other;
  const needed = Math.max(1, resolveSpecLimits(spec, want).minAvailable);
  const missing = 1 - other / needed;
  return 100 * Math.max(0, Math.min(missing, failed / (failed + other)));
}

/** A share above 0 never becomes weight 0, which receives nothing. */
function toWeight(percent: number, count: number): number {
  if (percent <= 0) return 0;
  const weight = Math.max(1, Math.round((percent * WEIGHT_PER_PERCENT) / count));
  // The default weight of all endpoints stands for no canary.
  return weight === DEFAULT_ENDPOINT_WEIGHT ? weight + 1 : weight;
}
