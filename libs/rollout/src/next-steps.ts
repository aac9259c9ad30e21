import { assert, type ReplicaId } from '@cloudless/base';
import { describeImpossible } from './limits.js';
import type { RolloutObserved } from './observed.js';
import { movesOf, tallyOf, type Tally } from './tally.js';

/** One move of a rolling update. The steps of one decision are safe in any order and after any prefix. */
export type RolloutStep =
  { readonly kind: 'createReplica'; readonly version: number } | { readonly kind: 'stopReplica'; readonly replicaId: ReplicaId };

/** Why there is nothing to do now although the goal is not reached. `text` is for people. */
export interface WaitReason {
  readonly kind:
    | 'paused' // other versions are left, and the rollout is paused
    | 'notReady' // replicas that shall stay are not freshly ready
    | 'unproven' // replicas have not been ready long enough, or their nodes are silent
    | 'stopping' // stops are not confirmed
    | 'impossibleLimits'; // only a change of the limits helps
  readonly text: string;
}

/** What can change the answer: something about the replicas, or only a change of the spec. */
export type WakeOn = { readonly kind: 'replicas' } | { readonly kind: 'spec' };

/** "No steps" is never mistaken for "done". */
export type RolloutDecision =
  | { readonly kind: 'steps'; readonly steps: readonly RolloutStep[] }
  | { readonly kind: 'waiting'; readonly reason: WaitReason; readonly wakeOn: WakeOn }
  | { readonly kind: 'converged' };

/**
 * Decides the next moves towards `want` ready replicas of `version`: creating, scaling, updating, replacing lost and failed
 * replicas, moving those on draining nodes, or all of it at once. Pure: same input in any order, same decision.
 * @param observed - Limits already resolved by `resolveLimits`, and every replica that still holds resources.
 * @returns Steps that add only while live < want + maxSurge + replicas being drained, and stop a ready replica only while
 *   more than `minAvailable` are ready; unready ones may always go, unproven ones while the ready ones alone hold the floor.
 *   Replicas on lost nodes take no room. For deletion pass limits resolved for 0.
 */
export function nextSteps(observed: RolloutObserved): RolloutDecision {
  const tally = tallyOf(observed);
  const unprovenVictims = tally.ready >= observed.minAvailable ? tally.unprovenVictims : [];
  const unreadyStops = tally.unreadyVictims.length + unprovenVictims.length;
  const outdatedReady = tally.readyVictims.length - tally.surplusReady - tally.drainingReady;
  const { creates, readyStops } = movesOf(observed, { ...tally, outdatedReady, unreadyStops });
  const stops = [...tally.unreadyVictims, ...unprovenVictims, ...tally.readyVictims.slice(0, readyStops)];
  const steps: RolloutStep[] = [
    ...Array.from({ length: creates }, () => ({ kind: 'createReplica', version: observed.version }) as const),
    ...stops.map((replica) => ({ kind: 'stopReplica', replicaId: replica.id }) as const),
  ];
  if (steps.length > 0) return { kind: 'steps', steps };
  return whyWaiting(observed, tally) ?? { kind: 'converged' };
}

/** What holds longest is named first, as stops end by themselves. Undefined when the goal is reached. */
function whyWaiting(observed: RolloutObserved, tally: Tally): RolloutDecision | undefined {
  const staying = observed.replicas.filter((replica) => !replica.lost && replica.desired === 'running');
  const unproven = staying.filter((replica) => !replica.ready && replica.unproven === true).length;
  const unready = staying.length - tally.ready - unproven;
  if (unready > 0)
    return waitFor('notReady', 'replicas', `${tally.ready} of ${observed.want} replicas are ready, ${unready} not yet`);
  if (unproven > 0)
    return waitFor(
      'unproven',
      'replicas',
      `${tally.ready} of ${observed.want} replicas count as ready; ${unproven} not for long enough, or on silent nodes`,
    );
  if (tally.leaving > 0) return waitFor('stopping', 'replicas', `${replicas(tally.leaving)} still stopping`);
  if (tally.readyVictims.length > 0) {
    // Nothing leaving, all ready, and nothing to do: only limits without a move bring that about.
    const text = describeImpossible(observed);
    assert(text !== undefined, 'an update that can move is never without steps');
    return waitFor('impossibleLimits', 'spec', text);
  }
  const outdated = staying.filter((replica) => replica.version !== observed.version).length;
  return outdated > 0 ? waitFor('paused', 'spec', `paused with ${replicas(outdated)} of other versions`) : undefined;
}

function waitFor(kind: WaitReason['kind'], wakeOn: WakeOn['kind'], text: string): RolloutDecision {
  return { kind: 'waiting', reason: { kind, text }, wakeOn: { kind: wakeOn } };
}

const replicas = (count: number): string => (count === 1 ? '1 replica' : `${count} replicas`);
