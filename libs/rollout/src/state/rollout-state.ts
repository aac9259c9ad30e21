import type { RolloutDecision } from '../steps/decision.js';
import type { RolloutObserved, RolloutReplica, RolloutStrategy } from '../steps/observed.js';

/**
 * Phase of a rollout. In a settled phase (`completed`, `rolledBack`) the planner only keeps the
 * replica count.
 */
export type RolloutPhase =
  'starting' | 'inProgress' | 'paused' | 'failed' | 'completed' | 'rolledBack';

/** One canary step: update a number of replicas, then wait. */
export interface CanaryStep {
  /** A number of replicas, or a percentage of the wanted number, rounded up. */
  readonly size: { readonly replicas: number } | { readonly percent: number };
  /** A time in milliseconds, or until a promotion. */
  readonly wait: { readonly ms: number } | 'promotion';
}

/** Rollout settings other than the limits. Times in milliseconds. */
export interface RolloutSettings {
  readonly strategy: RolloutStrategy['kind'];
  /** Canary steps of a rolling update, in order. */
  readonly canarySteps: readonly CanaryStep[];
  readonly manualSwitch: boolean;
  /** How long the previous version is kept after a blue/green switch. */
  readonly pauseMs: number;
  readonly progressDeadlineMs: number;
  /**
   * Number of failures of new replicas at which the rollout fails, or a percentage of the wanted
   * number of replicas, rounded up; 0 means the first failure.
   */
  readonly maxFailedNew: number | { readonly percent: number };
  readonly onFailure: 'pause' | 'rollback';
}

/** The state of a rollout between two decisions. Times are milliseconds of one clock. */
export interface RolloutState {
  readonly phase: RolloutPhase;
  /** What the rollout waits for, or why it failed; text for users. */
  readonly reason: string;
  /** The version being rolled out; 0 before the first. */
  readonly version: number;
  /** The active version at the start of the rollout; 0 when there was none. */
  readonly fromVersion: number;
  /**
   * The version that was rolled out last; under blue/green the serving one; 0 when there is none.
   */
  readonly activeVersion: number;
  readonly strategy: RolloutStrategy['kind'];
  readonly startedAtMs: number;
  /** Number of completed canary steps. */
  readonly stepsDone: number;
  /** Since when all replicas of the current canary step have been available. */
  readonly stepReachedAtMs?: number;
  readonly waitsForPromotion: boolean;
  /** A user promoted the rollout past its current wait. */
  readonly promoted: boolean;
  /** A user asked to retry a failed rollout. */
  readonly retry: boolean;
  /** Number of failures before the last retry, which no longer count. */
  readonly forgivenFailures: number;
  /** The best progress so far, and its time: the progress deadline counts from there. */
  readonly bestProgress: number;
  readonly progressAtMs: number;
  readonly switchedAtMs?: number;
  /** The failed version that this rollout rolls back from; 0 when it is no rollback. */
  readonly rollsBackFrom: number;
  /** When the current wait ends by time. */
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
  readonly pausedByUser: boolean;
  /** Number of restarts and failures of the replicas that this rollout created. */
  readonly failures: number;
  /** Whether the spec changed since the last decision, which restarts the progress deadline. */
  readonly changed: boolean;
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
    | 'stageReached'
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
  /** Instead of applying steps, write this version's template as the newest version. */
  readonly rollBackTo?: number;
  readonly events: readonly RolloutEvent[];
  /** When the answer changes by time alone. */
  readonly wakeAtMs?: number;
}

/** Tells whether a rollout has ended successfully; its version is only kept at its count. */
export const isSettled = ({ phase }: RolloutState): boolean =>
  phase === 'completed' || phase === 'rolledBack';

/**
 * Tells whether a rollout is the first deployment. It has no previous version to roll back to, so
 * after a failure it continues trying.
 */
export const isFirstRollout = ({ fromVersion }: RolloutState): boolean => fromVersion === 0;

/** The number of available replicas of the wanted version. */
export function countAvailable({ observed, version, toCanonical }: RolloutSituation): number {
  const wanted = toCanonical(version);
  return observed.replicas.filter(
    (replica) => replica.available && isStaying(replica) && replica.version === wanted,
  ).length;
}

const isStaying = ({ lost, desired }: RolloutReplica): boolean => !lost && desired === 'running';

/** Copies the state without some of its times. */
export function omitTimes(
  state: RolloutState,
  ...keys: readonly ('waitsUntilMs' | 'stepReachedAtMs' | 'switchedAtMs')[]
): RolloutState {
  const rest: { -readonly [Key in keyof RolloutState]: RolloutState[Key] } = { ...state };
  for (const key of keys) delete rest[key];
  return rest;
}

/** `90s`, `10m`, `250ms`. */
export function formatDuration(ms: number): string {
  if (ms >= 60_000 && ms % 60_000 === 0) return `${ms / 60_000}m`;
  return ms >= 1_000 ? `${Math.round(ms / 100) / 10}s` : `${ms}ms`;
}
