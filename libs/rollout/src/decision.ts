import type { ReplicaId } from '@cloudless/base';

/** One move of a rollout. The steps of one decision are safe in any order and after any prefix. */
export type RolloutStep =
  /** @property nodeId - The only node it may run on; absent: any. */
  | { readonly kind: 'createReplica'; readonly version: number; readonly nodeId?: string }
  | { readonly kind: 'stopReplica'; readonly replicaId: ReplicaId }
  /** From now on `version` is the active one (blue/green). Comes alone. */
  | { readonly kind: 'switchVersion'; readonly version: number };

/** Why there is nothing to do now although the goal is not reached. `text` is for people. */
export interface WaitReason {
  readonly kind:
    | 'paused' // other versions are left, and the rollout is paused
    | 'notReady' // replicas that shall stay are not freshly ready
    | 'unproven' // replicas have not been ready long enough, or their nodes are silent
    | 'stopping' // stops are not confirmed
    | 'stepReached' // as many run the new version as the canary step allows
    | 'promotion' // the new set is complete, and may not be switched to yet
    | 'kept' // the former version is kept for a quick way back
    | 'impossibleLimits'; // only a change of the limits helps
  readonly text: string;
}

/**
 * What can change the answer: something about the replicas, a promotion or the time of a step or
 * pause, or only a change of the spec.
 */
export type WakeOn =
  { readonly kind: 'replicas' } | { readonly kind: 'permission' } | { readonly kind: 'spec' };

/** "No steps" is never mistaken for "done". */
export type RolloutDecision =
  | { readonly kind: 'steps'; readonly steps: readonly RolloutStep[] }
  | { readonly kind: 'waiting'; readonly reason: WaitReason; readonly wakeOn: WakeOn }
  | { readonly kind: 'converged' };
