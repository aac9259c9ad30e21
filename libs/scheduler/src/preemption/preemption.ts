import type { NodeId, ReplicaId, WorkloadId } from '@cloudless/base';

/** Whether and at what price a reservation may be evicted. */
export type Evictability =
  /** The replica serves nobody, so its eviction needs no permit. */
  | 'free'
  /** The replica is available: its eviction uses one permit of its workload. */
  | 'counted'
  /** The replica may not be evicted. */
  | 'never';

/** A reservation that could be evicted. */
export interface VictimCandidate {
  readonly replicaId: ReplicaId;
  readonly workloadId: WorkloadId;
  readonly priority: number;
}

/** Conditions of the caller for one call to `preempt`. */
export interface PreemptOptions {
  /**
   * Decides whether a reservation may be evicted. Called for few reservations only. Default: every
   * reservation is `free`.
   */
  readonly evictabilityOf?: (candidate: VictimCandidate) => Evictability;
  /**
   * Returns how many available replicas of a workload may be evicted now: its available replicas
   * minus its `min_available`. Default: no limit.
   */
  readonly permitsOf?: (workloadId: WorkloadId) => number;
  /** The only nodes that are considered. Default: all nodes. */
  readonly nodeIds?: readonly NodeId[];
  /** The node to prefer among equal choices, such as the node that a replica waits for already. */
  readonly preferredNodeId?: NodeId;
}

/** A node that fits one replica of the request as soon as the victims have left. */
export interface Preemption {
  readonly nodeId: NodeId;
  /**
   * The reservations to evict, in order of priority, highest first. Empty when the request fits as
   * soon as the leaving replicas of the node have ended.
   */
  readonly victims: readonly VictimCandidate[];
}

/** Decision of `preempt`. */
export type PreemptionDecision =
  /** A node fits the request now, so nothing needs to be evicted. */
  | { readonly kind: 'fits' }
  | ({ readonly kind: 'preempt' } & Preemption)
  /**
   * No eviction that the options allow makes room.
   *
   * @property withoutPermits - What would be evicted if no workload had to keep its
   *   `min_available`; undefined when that would not help either.
   */
  | { readonly kind: 'impossible'; readonly withoutPermits: Preemption | undefined };

/**
 * Compares the priorities of two sets of victims, each sorted from highest to lowest: the set whose
 * highest priorities are lower comes first, and a set before the same set with further victims.
 * @returns A negative number when `a` is the better set, 0 for equal priorities.
 */
export function compareVictimPriorities(a: readonly number[], b: readonly number[]): number {
  for (let index = 0; index < a.length && index < b.length; index += 1) {
    const difference = (a[index] ?? 0) - (b[index] ?? 0);
    if (difference !== 0) return difference;
  }
  return a.length - b.length;
}
