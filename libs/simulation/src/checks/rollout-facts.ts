import { durationMs, type Duration } from '@bufbuild/protobuf/wkt';
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
import { canonicalVersion, isLive } from '@cloudless/cluster-state';
import { resolveLimits, type RolloutLimits } from '@cloudless/rollout';
import type { CheckedView } from '../parts/records.js';
import type { Evidence } from '../parts/evidence.js';

/**
 * What records say of a workload and its rollout, as a checker reads them: worked out from the
 * contract, not by the product.
 */
export interface RolloutFacts {
  readonly workload: WorkloadRecord;
  readonly control: ControlRecord | undefined;
  readonly limits: RolloutLimits;
  readonly strategy: Strategy;
  /** The oldest version with the wanted template. */
  readonly wanted: number;
  /**
   * The oldest version with the template that was rolled out last, or serves; `wanted` when nothing
   * was.
   */
  readonly active: number;
  /** Neither completed nor rolled back. */
  readonly isUnderWay: boolean;
  /** Nothing is rolled: by a user, or because it has failed. */
  readonly isHalted: boolean;
  /** Nothing was rolled out before. */
  readonly isFirst: boolean;
  /** The oldest version with the same template as this one. */
  readonly canonical: (version: number) => number;
  /** Not lost, not ended. */
  readonly live: readonly ReplicaRecord[];
}

type FactsView = Pick<CheckedView, 'replicasOf' | 'version' | 'control'>;

/** Reads what there is to know of a workload. */
export function factsOf(view: FactsView, workload: WorkloadRecord): RolloutFacts {
  const { uid, version, spec } = workload;
  const control = view.control(uid)?.value;
  const canonical = (number: number): number => canonicalVersion(view, uid, number);
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
    isUnderWay: !isSettled(phase),
    isHalted:
      !isSettled(phase) && (control?.pausedVersion === version || phase === RolloutPhase.FAILED),
    isFirst: (control?.rollout?.fromVersion ?? activeVersion) === 0,
    canonical,
    live: [...view.replicasOf(uid)]
      .map(({ value }) => value)
      .filter((replica) => isLive(replica) && !replica.lost),
  };
}

/** Completed or rolled back: nothing is under way. */
export function isSettled(phase: RolloutPhase): boolean {
  return phase === RolloutPhase.COMPLETED || phase === RolloutPhase.ROLLED_BACK;
}

/** Milliseconds; 0 when absent. */
export function msOf(duration: Duration | undefined): number {
  return duration === undefined ? 0 : durationMs(duration);
}

/** What a user asks of rollouts, with the defaults. */
export function settingsOf({ spec }: WorkloadRecord): Rollout | undefined {
  return spec === undefined ? undefined : fullOf(spec).rollout;
}

const known = new WeakMap<WorkloadSpec, WorkloadSpec>();

/** Checkers ask at every commit, and records are never changed in place. */
function fullOf(spec: WorkloadSpec): WorkloadSpec {
  const full = known.get(spec) ?? withDefaults(spec);
  known.set(spec, full);
  return full;
}

/**
 * Halted, at a canary step, or not switched yet: then the version before is kept up, and
 * replacements are of it.
 */
export function needsTheFormer({ workload, strategy, isHalted }: RolloutFacts): boolean {
  return (
    isHalted || strategy === Strategy.BLUE_GREEN || (settingsOf(workload)?.steps.length ?? 0) > 0
  );
}

/**
 * Replicas of the active version that have run to their end while it is kept up, or is going to be:
 * they have their places in it as ready ones have.
 */
export function formerEnded(view: FactsView, facts: RolloutFacts): number {
  const { workload, active, wanted, canonical } = facts;
  const isKept = needsTheFormer(facts) || settingsOf(workload)?.strategy === Strategy.BLUE_GREEN;
  if (active === wanted || !isKept) return 0;
  const replicas = [...view.replicasOf(workload.uid)].map(({ value }) => value);
  return replicas.filter(
    (replica) => canonical(replica.version) === active && isFinal(workload, replica),
  ).length;
}

/** CLD-REQ-023: how many live replicas a workload may have. Those on lost nodes do not count. */
export function ceilingOf(
  { limits, live, strategy }: RolloutFacts,
  { draining }: Pick<Evidence, 'draining'>,
): number {
  const { want, maxSurge } = limits;
  const beside: Record<Strategy, number> = {
    [Strategy.ROLLING_UPDATE]: maxSurge,
    [Strategy.RECREATE]: 0,
    [Strategy.BLUE_GREEN]: want,
  };
  return want + beside[strategy] + live.filter(({ nodeId }) => draining.has(nodeId)).length;
}

/**
 * The limits of a workload: by its spec without the replicas that have run to their end; none is
 * wanted while it is being deleted.
 */
export function limitsOf(
  view: Pick<CheckedView, 'replicasOf' | 'version'>,
  workload: WorkloadRecord,
): RolloutLimits {
  const { deletionRequestedAt, uid, spec } = workload;
  const replicas = spec === undefined ? 0 : (fullOf(spec).replicas ?? 0);
  const rollout = settingsOf(workload);
  const wanted = canonicalVersion(view, uid, workload.version);
  const ended = [...view.replicasOf(uid)].filter(
    ({ value }) =>
      canonicalVersion(view, uid, value.version) === wanted && isFinal(workload, value),
  ).length;
  return resolveLimits({
    desired: deletionRequestedAt === undefined ? Math.max(0, replicas - ended) : 0,
    ...(rollout?.maxSurge === undefined ? {} : { maxSurge: rollout.maxSurge }),
    ...(rollout?.maxUnavailable === undefined ? {} : { maxUnavailable: rollout.maxUnavailable }),
    ...(rollout?.minAvailable === undefined ? {} : { minAvailable: rollout.minAvailable }),
  });
}

/** It has run to its end, and is not to be replaced: it counts as one of those that are wanted. */
function isFinal(
  { spec }: WorkloadRecord,
  { lost, desiredRunning, phase }: ReplicaRecord,
): boolean {
  if (lost || !desiredRunning) return false;
  return (
    phase === Phase.SUCCEEDED || (phase === Phase.FAILED && spec?.restart?.policy === Restart.NEVER)
  );
}
