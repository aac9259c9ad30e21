import { durationMs, type Duration } from '@bufbuild/protobuf/wkt';
import { definedFields } from '@cloudless/base';
import {
  ReplicaStatus_Phase as Phase,
  RestartPolicy_Policy as Restart,
  Rollout_Strategy as Strategy,
  RolloutStatus_Phase as RolloutPhase,
  withDefaults,
  type Rollout,
  type WorkloadSpec,
} from '@cloudless/api';
import type { ControlRecord, ReplicaRecord, WorkloadRecord } from '@cloudless/api/store';
import { toCanonicalVersion, isLive } from '@cloudless/cluster-state';
import { resolveLimits, type RolloutLimits } from '@cloudless/rollout';
import type { CheckedView } from '../parts/durable-records.js';
import type { NodeFacts } from '../parts/node-facts.js';
import { isEvicted } from './node-access.js';

/**
 * Facts of a workload and its rollout, derived by the checkers from the API contract, independently
 * of the product's code.
 */
export interface RolloutFacts {
  readonly workload: WorkloadRecord;
  readonly control: ControlRecord | undefined;
  readonly limits: RolloutLimits;
  readonly strategy: Strategy;
  /** Oldest version with the wanted template. */
  readonly wanted: number;
  /**
   * Oldest version with the template that was rolled out last or serves now; `wanted` when nothing
   * was rolled out.
   */
  readonly active: number;
  /** True while the rollout is neither completed nor rolled back. */
  readonly isInProgress: boolean;
  /** True while the rollout does not proceed because a user paused it or it has failed. */
  readonly isHalted: boolean;
  /** True when no version was rolled out before. */
  readonly isFirst: boolean;
  /** Returns the oldest version with the same template as the given version. */
  readonly canonicalVersion: (version: number) => number;
  /** Replicas that are neither lost nor ended. */
  readonly live: readonly ReplicaRecord[];
}

type FactsView = Pick<CheckedView, 'replicasOf' | 'version' | 'control'>;

/** Derives the facts of a workload. */
export function factsOf(view: FactsView, workload: WorkloadRecord): RolloutFacts {
  const { uid, version, spec } = workload;
  const control = view.control(uid)?.value;
  const canonical = (number: number): number => toCanonicalVersion(view, uid, number);
  const wanted = canonical(version);
  const activeVersion = control?.activeVersion ?? 0;
  const phase = control?.rolloutPhase ?? RolloutPhase.STARTING;
  return {
    workload,
    control,
    limits: limitsOf(view, workload),
    strategy: control?.rollout?.strategy ?? spec?.rollout?.strategy ?? Strategy.ROLLING_UPDATE,
    wanted,
    active: activeVersion === 0 ? wanted : canonical(activeVersion),
    isInProgress: !isSettled(phase),
    isHalted:
      !isSettled(phase) && (control?.pausedVersion === version || phase === RolloutPhase.FAILED),
    isFirst: (control?.rollout?.fromVersion ?? activeVersion) === 0,
    canonicalVersion: canonical,
    live: [...view.replicasOf(uid)]
      .map(({ value }) => value)
      .filter((replica) => isLive(replica) && !replica.lost),
  };
}

/** Returns true for completed and rolled-back rollouts. */
export function isSettled(phase: RolloutPhase): boolean {
  return phase === RolloutPhase.COMPLETED || phase === RolloutPhase.ROLLED_BACK;
}

/** Converts a duration to milliseconds; 0 when absent. */
export function msOf(duration: Duration | undefined): number {
  return duration === undefined ? 0 : durationMs(duration);
}

/** Returns the rollout settings with defaults; undefined without a spec. */
export function settingsOf({ spec }: WorkloadRecord): Rollout | undefined {
  return spec === undefined ? undefined : withCachedDefaults(spec).rollout;
}

const defaultsBySpec = new WeakMap<WorkloadSpec, WorkloadSpec>();

/** Applies the API defaults. Cached by spec, because checkers apply them at every commit. */
function withCachedDefaults(spec: WorkloadSpec): WorkloadSpec {
  const full = defaultsBySpec.get(spec) ?? withDefaults(spec);
  defaultsBySpec.set(spec, full);
  return full;
}

/**
 * Returns true when the rollout is halted, has canary steps, or is BLUE_GREEN. Then the controllers
 * may replace replicas of the previous version.
 */
export function needsPreviousVersion({ workload, strategy, isHalted }: RolloutFacts): boolean {
  return (
    isHalted || strategy === Strategy.BLUE_GREEN || (settingsOf(workload)?.steps.length ?? 0) > 0
  );
}

/**
 * Counts the replicas of the previous version that ended as wanted while the controllers keep that
 * version running. Such replicas count as ready.
 */
export function countEndedOfPreviousVersion(view: FactsView, facts: RolloutFacts): number {
  const { workload, active, wanted, canonicalVersion } = facts;
  const isKept =
    needsPreviousVersion(facts) || settingsOf(workload)?.strategy === Strategy.BLUE_GREEN;
  if (active === wanted || !isKept) return 0;
  const replicas = [...view.replicasOf(workload.uid)].map(({ value }) => value);
  return replicas.filter(
    (replica) => canonicalVersion(replica.version) === active && isFinal(workload, replica),
  ).length;
}

/**
 * CLD-REQ-023: returns the largest permitted number of live replicas of a workload. Lost replicas
 * are not live; replicas that must leave their node raise the ceiling.
 */
export function ceilingOf(
  view: Pick<CheckedView, 'version'>,
  { limits, live, strategy }: RolloutFacts,
  nodeFacts: NodeFacts,
): number {
  const { want, maxSurge } = limits;
  const beside: Record<Strategy, number> = {
    [Strategy.ROLLING_UPDATE]: maxSurge,
    [Strategy.RECREATE]: 0,
    [Strategy.BLUE_GREEN]: want,
  };
  return (
    want + beside[strategy] + live.filter((replica) => isEvicted(view, replica, nodeFacts)).length
  );
}

/**
 * Returns the limits of a workload from its spec. The wanted count excludes replicas that ended as
 * wanted, and is 0 during deletion.
 */
export function limitsOf(
  view: Pick<CheckedView, 'replicasOf' | 'version'>,
  workload: WorkloadRecord,
): RolloutLimits {
  const { deletionRequestedAt, uid, spec } = workload;
  const replicas = spec === undefined ? 0 : (withCachedDefaults(spec).replicas ?? 0);
  const rollout = settingsOf(workload);
  const wanted = toCanonicalVersion(view, uid, workload.version);
  const ended = [...view.replicasOf(uid)].filter(
    ({ value }) =>
      toCanonicalVersion(view, uid, value.version) === wanted && isFinal(workload, value),
  ).length;
  return resolveLimits({
    desired: deletionRequestedAt === undefined ? Math.max(0, replicas - ended) : 0,
    ...definedFields({
      maxSurge: rollout?.maxSurge,
      maxUnavailable: rollout?.maxUnavailable,
      minAvailable: rollout?.minAvailable,
    }),
  });
}

/**
 * Returns true for a replica that ended as its restart policy allows, so that no replica replaces
 * it.
 */
function isFinal(
  { spec }: WorkloadRecord,
  { lost, desiredRunning, phase }: ReplicaRecord,
): boolean {
  if (lost || !desiredRunning) return false;
  return (
    phase === Phase.SUCCEEDED || (phase === Phase.FAILED && spec?.restart?.policy === Restart.NEVER)
  );
}
