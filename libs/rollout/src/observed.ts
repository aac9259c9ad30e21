import type { ReplicaId } from '@cloudless/base';
import type { RolloutLimits } from './limits.js';

/** One replica as the planner sees it. Failed, succeeded and stopped ones hold nothing and are not passed. */
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
   * It may well serve, though it does not count as ready: its node is silent but not lost yet, or it has been ready for less
   * than min_ready_duration. So it is not free to go like an unready one. Time ends this state. Default false; means nothing
   * when `ready`.
   */
  readonly unproven?: boolean;
  /** Grows with each replica of the workload; the newest has the highest. */
  readonly createdSequence: number;
}

/** Everything a decision depends on. The order of `replicas` does not matter. */
export interface RolloutObserved extends RolloutLimits {
  /** The version every replica shall have in the end. */
  readonly version: number;
  /**
   * Nothing is rolled: replicas of every version may stay. Scaling, draining and replacing go on; replacements get `version`,
   * so the caller of a paused rollout chooses there what they run. Default false.
   */
  readonly paused?: boolean;
  readonly replicas: readonly RolloutReplica[];
}
