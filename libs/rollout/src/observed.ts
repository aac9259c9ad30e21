import type { ReplicaId } from '@cloudless/base';
import type { RolloutLimits } from './limits.js';

/**
 * One replica as the planner sees it. Failed, succeeded and stopped ones hold nothing and are not
 * passed.
 */
export interface RolloutReplica {
  readonly id: ReplicaId;
  /** Which template it was made from. */
  readonly version: number;
  /** Freshly ready: ready for min_ready_duration, not stale, its node's session alive. */
  readonly ready: boolean;
  /** `stopped` once a stop has been committed, until it is confirmed. */
  readonly desired: 'running' | 'stopped';
  /** Its node is lost: it takes no room and counts for nothing. */
  readonly lost: boolean;
  /** Its node is being drained: it has to be replaced elsewhere. */
  readonly draining: boolean;
  /**
   * It may well serve, though it does not count as ready: its node is silent but not lost yet, or
   * it has been ready for less than min_ready_duration. So it is not free to go like an unready
   * one. Time ends this state. Default false; means nothing when `ready`.
   */
  readonly unproven?: boolean;
  /** Grows with each replica of the workload; the newest has the highest. */
  readonly createdSequence: number;
  /**
   * It has to go whatever the floor: the drain of its node is forced. Then it counts like an
   * unready one. Default false.
   */
  readonly forced?: boolean;
  /** The node it is on or bound to; only {@link RolloutObserved.seats} need it. */
  readonly nodeId?: string;
  /** Why no node takes it. Absent: it has one, or nobody has looked yet. */
  readonly unplaced?: string;
}

/** How a new version takes the place of another. */
export type RolloutStrategy =
  /**
   * @property updated - A canary step: at most so many of `version`, the others keep `baseVersion`.
   * Absent: all.
   */
  | { readonly kind: 'rollingUpdate'; readonly updated?: number }
  /** Stops all of other versions, then starts all. */
  | { readonly kind: 'recreate' }
  | {
      /** Makes the whole new set beside the active one, then switches. */
      readonly kind: 'blueGreen';
      /**
       * The version that serves: only its replicas count for the floor. `version` itself when
       * nothing served before.
       */
      readonly activeVersion: number;
      /** Whether a complete new set may be switched to; false waits for a promotion. */
      readonly maySwitch: boolean;
      /** Replicas of this version, no longer active, stay for a quick way back. */
      readonly keepVersion?: number;
    };

/** Everything a decision depends on. The order of `replicas` does not matter. */
export interface RolloutObserved extends RolloutLimits {
  /** The version every replica shall have in the end. */
  readonly version: number;
  /**
   * Nothing is rolled: replicas of every version may stay. Scaling, draining and replacing go on;
   * replacements get `version`, so the caller of a paused rollout chooses there what they run.
   * Default false.
   */
  readonly paused?: boolean;
  readonly replicas: readonly RolloutReplica[];
  /** Default: a rolling update. */
  readonly strategy?: RolloutStrategy;
  /**
   * What replacements run that `version` may not: while paused, and beyond a canary step. Default
   * `version`.
   */
  readonly baseVersion?: number;
  /**
   * One replica on each of these nodes (mode GLOBAL); `want` is their number. Absent: any nodes.
   */
  readonly seats?: readonly string[];
}
