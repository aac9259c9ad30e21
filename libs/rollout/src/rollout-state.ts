import type { RolloutDecision } from './decision.js';
import type { RolloutObserved, RolloutReplica, RolloutStrategy } from './observed.js';

/**
 * Where a rollout is. A settled one (`completed`, `rolledBack`) goes on being kept at its count.
 */
export type RolloutPhase =
  'starting' | 'inProgress' | 'paused' | 'failed' | 'completed' | 'rolledBack';

/** One canary step: bring so many replicas to the new version, then wait. */
export interface RolloutStage {
  /** A number of replicas, or a share of the wanted number, rounded up. */
  readonly size: { readonly replicas: number } | { readonly percent: number };
  /** For so long, milliseconds, or until somebody promotes. */
  readonly wait: { readonly ms: number } | 'promotion';
}

/** What a user asks of a rollout beside its limits. Times in milliseconds. */
export interface RolloutSettings {
  readonly strategy: RolloutStrategy['kind'];
  /** Canary steps of a rolling update, in order. */
  readonly stages: readonly RolloutStage[];
  /** Whether a blue/green switch waits for a promotion. */
  readonly manualSwitch: boolean;
  /** How long the former version is kept after a blue/green switch. */
  readonly pauseMs: number;
  readonly progressDeadlineMs: number;
  /** Failures of new replicas after which the rollout has failed; 0 means the first one. */
  readonly maxFailedNew: number;
  readonly onFailure: 'pause' | 'rollback';
}

/** What is remembered of a rollout between two decisions. Times are milliseconds of one clock. */
export interface RolloutState {
  readonly phase: RolloutPhase;
  /** What it waits for, or why it failed; for people. */
  readonly reason: string;
  /** The version it brings about; 0 before the first. */
  readonly version: number;
  /** What was active when it began; 0: nothing. */
  readonly fromVersion: number;
  /** The version that was rolled out last, and under blue/green the one that serves; 0: none. */
  readonly activeVersion: number;
  readonly strategy: RolloutStrategy['kind'];
  readonly startedAtMs: number;
  /** Canary steps that are done. */
  readonly stagesDone: number;
  /** Since when the present step has all its replicas ready. */
  readonly stageReachedAtMs?: number;
  readonly waitsForPromotion: boolean;
  /** Somebody has let it go on from where it waits. */
  readonly promoted: boolean;
  /** Somebody wants a failed one to try again. */
  readonly retry: boolean;
  /** Failures of new replicas that a retry forgave. */
  readonly forgiven: number;
  /** The best that was seen, and when: the deadline counts from there. */
  readonly progress: number;
  readonly progressAtMs: number;
  /** When a blue/green rollout switched. */
  readonly switchedAtMs?: number;
  /** It goes back from this version, which failed; 0: it does not. */
  readonly rollsBack: number;
  /** When what it waits for by time has passed. */
  readonly untilMs?: number;
}

/** The state of a workload that has never been rolled out. */
export const NO_ROLLOUT: RolloutState = {
  phase: 'starting',
  reason: '',
  version: 0,
  fromVersion: 0,
  activeVersion: 0,
  strategy: 'rollingUpdate',
  startedAtMs: 0,
  stagesDone: 0,
  waitsForPromotion: false,
  promoted: false,
  retry: false,
  forgiven: 0,
  progress: 0,
  progressAtMs: 0,
  rollsBack: 0,
};

/** Everything a rollout's next move depends on. */
export interface RolloutSituation {
  readonly settings: RolloutSettings;
  /** The version that is wanted, as the history counts. */
  readonly version: number;
  /**
   * The oldest version with the same template: replicas of the one are as good as those of the
   * other.
   */
  readonly canonical: (version: number) => number;
  /** Limits and replicas, whose versions are canonical ones. */
  readonly observed: Omit<RolloutObserved, 'version' | 'strategy' | 'baseVersion' | 'paused'>;
  readonly pausedByUser: boolean;
  /** Restarts and failures of the replicas that this rollout has made. */
  readonly failures: number;
  /** The spec changed since the last decision: what is wanted now may take its own time. */
  readonly changed: boolean;
  readonly nowMs: number;
}

/** Something that people are told of. */
export interface RolloutNews {
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

/** What is to be done, and what is to be remembered. */
export interface RolloutAdvance {
  readonly state: RolloutState;
  /** What the planner was asked, for explanations. */
  readonly observed: RolloutObserved;
  readonly decision: RolloutDecision;
  /** Make this version's template the newest one, instead of taking the steps. */
  readonly rollBackTo?: number;
  readonly news: readonly RolloutNews[];
  /** When time alone changes the answer. */
  readonly wakeAtMs?: number;
}

/** Whether a rollout has ended well: its version is only kept at its count. */
export const isSettled = ({ phase }: RolloutState): boolean =>
  phase === 'completed' || phase === 'rolledBack';

/**
 * A first deployment has nothing to go back to, and nothing to protect: when it fails it goes on
 * trying.
 */
export const isFirst = ({ fromVersion }: RolloutState): boolean => fromVersion === 0;

/** Freshly ready replicas of the wanted version. */
export function readyOf({ observed, version, canonical }: RolloutSituation): number {
  const wanted = canonical(version);
  return observed.replicas.filter(
    (replica) => replica.ready && isStaying(replica) && replica.version === wanted,
  ).length;
}

const isStaying = ({ lost, desired }: RolloutReplica): boolean => !lost && desired === 'running';

/** The state without some of its times. */
export function without(
  state: RolloutState,
  ...keys: readonly ('untilMs' | 'stageReachedAtMs' | 'switchedAtMs')[]
): RolloutState {
  const rest: { -readonly [Key in keyof RolloutState]: RolloutState[Key] } = { ...state };
  for (const key of keys) delete rest[key];
  return rest;
}

/** `90s`, `10m`, `250ms`. */
export function textOfMs(ms: number): string {
  if (ms >= 60_000 && ms % 60_000 === 0) return `${ms / 60_000}m`;
  return ms >= 1_000 ? `${Math.round(ms / 100) / 10}s` : `${ms}ms`;
}
