import type { ReplicaId } from '@cloudless/base';
import type { RolloutLimits } from './limits.js';

/**
 * One replica, as input of the planner. Failed, succeeded and stopped replicas hold no resources
 * and are not passed.
 */
export interface RolloutReplica {
  readonly id: ReplicaId;
  /** Version of the template that the replica was created from. */
  readonly version: number;
  /** Available: ready for at least min_ready_duration, on a node with a live session. */
  readonly available: boolean;
  /** `stopped` from the commit of the stop until its confirmation. */
  readonly desired: 'running' | 'stopped';
  /** True when the node is lost: the replica takes no room and does not count. */
  readonly lost: boolean;
  /** True when the node is being drained: the replica has to be replaced on another node. */
  readonly draining: boolean;
  /**
   * True when the replica may serve although it is not available: its node is silent but not lost,
   * or it has been ready for less than min_ready_duration. Such a replica must not be stopped like
   * an unready replica. The state ends by time. Default false; ignored when `available`.
   */
  readonly notYetAvailable?: boolean;
  /** True when `notYetAvailable` has its reason in a silent node. For texts only. Default false. */
  readonly onSilentNode?: boolean;
  /** Creation order within the workload; the newest replica has the highest number. */
  readonly createdSequence: number;
  /**
   * True when the replica stops whatever `minAvailable` says: the drain of its node is forced. The
   * replica then counts as unready. Default false.
   */
  readonly forced?: boolean;
  /**
   * The node that the replica is on or may run on; required with {@link
   * RolloutObserved.globalTargets} only.
   */
  readonly nodeId?: string;
  /** Reason why no node fits the replica. Absent with a node, or before the first placement. */
  readonly unplaced?: string;
}

/** Strategy by which a new version replaces another. */
export type RolloutStrategy =
  /**
   * @property updated - The canary step: at most this many replicas run `version`, the others keep
   *   `baseVersion`. Absent: all.
   */
  | { readonly kind: 'rollingUpdate'; readonly updated?: number }
  /** Stops all replicas of other versions, then creates all new replicas. */
  | { readonly kind: 'recreate' }
  | {
      /** Creates the whole new set beside the active set, then switches. */
      readonly kind: 'blueGreen';
      /**
       * The serving version: only its replicas count for `minAvailable`. Equal to `version` in a
       * first deployment.
       */
      readonly activeVersion: number;
      /** True when a complete new set may become active; false waits for a promotion. */
      readonly maySwitch: boolean;
      /**
       * The previous version, whose replicas are kept for a quick rollback. Absent: none is kept.
       */
      readonly keepVersion?: number;
    };

/** The input of a decision. The order of `replicas` does not matter. */
export interface RolloutObserved extends RolloutLimits {
  /** The wanted version of every replica. */
  readonly version: number;
  /**
   * True while the rollout is paused: replicas of every version may stay. Scaling, draining and
   * replacing continue. Default false.
   */
  readonly paused?: boolean;
  readonly replicas: readonly RolloutReplica[];
  /**
   * Number of further replicas, which `replicas` leaves out: each runs `version`, waits for a node,
   * and so is not available. Only while {@link mayLeaveOutWaiting} is true: no decision chooses among
   * such replicas then, and a workload may have a million of them. Default 0.
   */
  readonly waiting?: number;
  /**
   * Number of further replicas, which `replicas` leaves out: each is available and holds one of the
   * `want` places, whatever its version. Only in a rolling update without canary step and pause,
   * while no decision chooses among these replicas. Default 0.
   */
  readonly alsoAvailable?: number;
  /** Default: a rolling update of all replicas. */
  readonly strategy?: RolloutStrategy;
  /**
   * The version of replacements that may not run `version`: while paused, and beyond a canary step.
   * Default `version`.
   */
  readonly baseVersion?: number;
  /**
   * The target nodes of mode GLOBAL, one replica on each; `want` is their number. Absent: any
   * nodes.
   */
  readonly globalTargets?: readonly string[];
  /**
   * Nodes that accept nothing new and keep a replica of another version (mode GLOBAL). The planner
   * ignores these nodes; the rollout is not complete while there is a pinned node. Default none.
   */
  readonly pinnedNodes?: readonly string[];
}

/**
 * Returns true when the decision about a workload is the same with `waiting` replicas left out of
 * {@link RolloutObserved.replicas} and only counted: a rolling update of all replicas, none of which
 * has to stop or to leave its node.
 * @param observed - With all other replicas.
 */
export function mayLeaveOutWaiting(observed: RolloutObserved, waiting: number): boolean {
  const { strategy, replicas, want, version, paused, globalTargets, baseVersion } = observed;
  if (strategy !== undefined && (strategy.kind !== 'rollingUpdate' || 'updated' in strategy))
    return false;
  if (paused === true || globalTargets !== undefined || (baseVersion ?? version) !== version)
    return false;
  let staying = 0;
  for (const replica of replicas) {
    if (replica.forced === true || replica.draining) return false;
    if (replica.lost || replica.desired === 'stopped') continue;
    if (replica.version !== version) return false;
    staying += 1;
  }
  return staying + waiting <= want;
}
