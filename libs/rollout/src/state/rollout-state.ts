import type { RolloutDecision } from '../steps/decision.js';
import type { RolloutObserved, RolloutReplica, RolloutStrategy } from '../steps/observed.js';
import { countWhere } from '../steps/replica-tally.js';

/**
 * Phase of a rollout. In a settled phase (`completed`, `rolledBack`) the planner only keeps the
 * replica count.
 */
export type RolloutPhase =
  'starting' | 'inProgress' | 'paused' | 'failed' | 'completed' | 'rolledBack';

/** One canary step: update a number of replicas, then wait. */
export interface CanaryStep {
  /** A number of replicas, or a percentage of the wanted number, rounded up, at least one replica. */
  readonly size: { readonly replicas: number } | { readonly percent: number };
  /** The wait after the step: a time in milliseconds, or until a promotion. */
  readonly wait: { readonly ms: number } | 'promotion';
  /**
   * A condition that must have been true for the whole wait; after a promotion, at the moment. Absent:
   * none.
   */
  readonly gate?: string;
}

/** Result of an evaluation of a gate; `noData`: a figure is missing, or the evaluation failed. */
export type GateVerdict = 'passed' | 'failed' | 'noData';

/** The newest evaluation of the gate of a canary step, on the figures of this moment. */
export interface GateObservation {
  /** The evaluated gate. The observation does not count for another one. */
  readonly expression: string;
  readonly verdict: GateVerdict;
  /** The figures, or what is missing, for people. */
  readonly text: string;
}

/** Rollout settings other than the limits. Times in milliseconds. */
export interface RolloutSettings {
  readonly strategy: RolloutStrategy['kind'];
  /** Canary steps of a rolling update, in order. */
  readonly canarySteps: readonly CanaryStep[];
  /** True when a blue/green switch needs a promotion. */
  readonly manualSwitch: boolean;
  /** Time for which the previous version is kept after a blue/green switch. */
  readonly pauseMs: number;
  /** Time without progress after which the rollout fails. */
  readonly progressDeadlineMs: number;
  /**
   * Number of failures of new replicas at which the rollout fails, or a percentage of the wanted
   * number of replicas, rounded up; 0 means the first failure.
   */
  readonly maxFailedNew: number | { readonly percent: number };
  /**
   * Reaction to a failure: the rollout stays failed, or the previous template is written again.
   */
  readonly onFailure: 'pause' | 'rollback';
}

/** The state of a rollout between two decisions. Times are milliseconds of one clock. */
export interface RolloutState {
  readonly phase: RolloutPhase;
  /** Text for users: the reason of a wait or a failure; empty when there is none. */
  readonly reason: string;
  /** The version being rolled out; 0 before the first. */
  readonly version: number;
  /** The active version at the start of the rollout; 0 when there was none. */
  readonly fromVersion: number;
  /**
   * The version that was rolled out last; under blue/green the serving version; 0 before the first.
   */
  readonly activeVersion: number;
  readonly strategy: RolloutStrategy['kind'];
  readonly startedAtMs: number;
  /** Number of completed canary steps. */
  readonly stepsDone: number;
  /** Time since which all replicas of the current canary step have been available. */
  readonly stepReachedAtMs?: number;
  /**
   * Verdict of the gate of the current canary step, and the time since when it has been the same.
   * Absent while no gate is evaluated.
   */
  readonly gate?: { readonly verdict: GateVerdict; readonly sinceMs: number };
  /** True while the rollout waits for a promotion at a canary step or before a switch. */
  readonly waitsForPromotion: boolean;
  /** A user promoted the rollout past its current wait. */
  readonly promoted: boolean;
  /** A user asked to retry a failed rollout. */
  readonly retry: boolean;
  /** Number of failures before the last retry, which no longer count. */
  readonly forgivenFailures: number;
  /** Most progress so far: available replicas of the version minus replicas of other versions. */
  readonly bestProgress: number;
  /** Time from which the progress deadline counts. */
  readonly progressAtMs: number;
  /** Time of the blue/green switch. */
  readonly switchedAtMs?: number;
  /** The failed version that this rollout rolls back from; 0 when this rollout is no rollback. */
  readonly rollsBackFrom: number;
  /** Time at which the current wait, or the progress deadline, ends. */
  readonly waitsUntilMs?: number;
}

/** State of a workload without any rollout. */
export const NO_ROLLOUT: RolloutState = {
  phase: 'starting',
  reason: '',
  version: 0,
  fromVersion: 0,
  activeVersion: 0,
  strategy: 'rollingUpdate',
  startedAtMs: 0,
  stepsDone: 0,
  waitsForPromotion: false,
  promoted: false,
  retry: false,
  forgivenFailures: 0,
  bestProgress: 0,
  progressAtMs: 0,
  rollsBackFrom: 0,
};

/** Everything that the next decision of a rollout depends on. */
export interface RolloutSituation {
  readonly settings: RolloutSettings;
  /** The wanted version, as numbered in the history. */
  readonly version: number;
  /**
   * Returns the oldest version with the same template. Replicas of both versions are
   * interchangeable.
   */
  readonly toCanonical: (version: number) => number;
  /** Limits and replicas; replica versions are canonical. */
  readonly observed: Omit<RolloutObserved, 'version' | 'strategy' | 'baseVersion' | 'paused'>;
  /** True while a user has paused the rollout of this version. */
  readonly pausedByUser: boolean;
  /** Number of restarts, failed starts and failures of the replicas that this rollout created. */
  readonly failures: number;
  /** The gate of the current canary step. Absent: not evaluated, which counts as no data. */
  readonly gate?: GateObservation;
  /** True when the spec changed since the last decision, which restarts the progress deadline. */
  readonly changed: boolean;
  /** The current time, on the clock of the times in the state. */
  readonly nowMs: number;
}

/** An event of a rollout, for users. */
export interface RolloutEvent {
  readonly kind:
    | 'started'
    | 'completed'
    | 'failed'
    | 'rolledBack'
    | 'paused'
    | 'resumed'
    | 'canaryStepReached'
    | 'awaitsPromotion'
    | 'switched';
  readonly message: string;
}

/** The result of a decision: the next state and the next steps. */
export interface RolloutAdvance {
  readonly state: RolloutState;
  /** The input of the planner, for explanations. */
  readonly observed: RolloutObserved;
  readonly decision: RolloutDecision;
  /**
   * The version whose template the caller has to write as the newest version; absent without a
   * rollback. The decision then has no steps.
   */
  readonly rollBackTo?: number;
  readonly events: readonly RolloutEvent[];
  /** Time at which the decision changes by time alone; absent when it never does. */
  readonly wakeAtMs?: number;
}

/** Returns true for a rollout that has ended in phase `completed` or `rolledBack`. */
export const isSettled = ({ phase }: RolloutState): boolean =>
  phase === 'completed' || phase === 'rolledBack';

/**
 * Returns true for a first deployment, which has no previous version to roll back to. A failed
 * first deployment therefore still creates and stops replicas.
 */
export const isFirstRollout = ({ fromVersion }: RolloutState): boolean => fromVersion === 0;

/** Returns the number of available replicas of the wanted version. */
export function countAvailable({ observed, version, toCanonical }: RolloutSituation): number {
  const wanted = toCanonical(version);
  return countWhere(
    observed.replicas,
    (replica) => replica.available && isStaying(replica) && replica.version === wanted,
  );
}

const isStaying = ({ lost, desired }: RolloutReplica): boolean => !lost && desired === 'running';

/** Returns a copy of the state without the given times, or without the verdict of the gate. */
export function omitTimes(
  state: RolloutState,
  ...keys: readonly ('waitsUntilMs' | 'stepReachedAtMs' | 'switchedAtMs' | 'gate')[]
): RolloutState {
  const rest: { -readonly [Key in keyof RolloutState]: RolloutState[Key] } = { ...state };
  for (const key of keys) delete rest[key];
  return rest;
}

/** Formats milliseconds for users: `10m` for whole minutes, else `90s`, `1.5s` or `250ms`. */
export function formatDuration(ms: number): string {
  if (ms >= 60_000 && ms % 60_000 === 0) return `${ms / 60_000}m`;
  return ms >= 1_000 ? `${Math.round(ms / 100) / 10}s` : `${ms}ms`;
}
