import type { ReplicaId } from '@cloudless/base';

/** One step of a rollout. The steps of one decision are safe in any order and after any prefix. */
export type RolloutStep =
  /** @property nodeId - The only node that the replica may run on; absent: any node. */
  | { readonly kind: 'createReplica'; readonly version: number; readonly nodeId?: string }
  | { readonly kind: 'stopReplica'; readonly replicaId: ReplicaId }
  /** Makes `version` the active version (blue/green). Always the only step of its decision. */
  | { readonly kind: 'switchVersion'; readonly version: number };

/** Reason why no step is possible although the goal is not reached. `text` is for users. */
export interface WaitReason {
  readonly kind:
    | 'paused' // paused with replicas of other versions
    | 'notReady' // replicas that stay are not ready
    | 'notYetAvailable' // replicas are ready for less than min_ready_duration, or their nodes are silent
    | 'stopping' // stops are not confirmed
    | 'stepReached' // the canary step has all its replicas
    | 'promotion' // the new set is complete and needs a promotion
    | 'kept' // the previous version is kept for a quick rollback
    | 'impossibleLimits'; // only a change of the limits helps
  readonly text: string;
}

/**
 * Cause that can change a wait: a change of the replicas, a promotion or the end of a time
 * (`permission`), or only a change of the spec.
 */
export type WakeOn =
  { readonly kind: 'replicas' } | { readonly kind: 'permission' } | { readonly kind: 'spec' };

/**
 * A decision of the planner. A wait and the reached goal are different kinds, so that "no steps" is
 * never mistaken for "done".
 */
export type RolloutDecision =
  | { readonly kind: 'steps'; readonly steps: readonly RolloutStep[] }
  | { readonly kind: 'waiting'; readonly reason: WaitReason; readonly wakeOn: WakeOn }
  | { readonly kind: 'converged' };
