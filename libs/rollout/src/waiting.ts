import { assert } from '@cloudless/base';
import type { RolloutDecision, WaitReason, WakeOn } from './decision.js';
import { describeImpossible, type RolloutLimits } from './limits.js';
import type { Tally } from './tally.js';

/** A decision to wait. */
export function waitFor(
  kind: WaitReason['kind'],
  wakeOn: WakeOn['kind'],
  text: string,
): RolloutDecision {
  return { kind: 'waiting', reason: { kind, text }, wakeOn: { kind: wakeOn } };
}

/**
 * What a set of replicas waits for; what holds longest is named first, as stops end by themselves.
 * Undefined when it is as it shall be.
 */
export function whySetWaits(limits: RolloutLimits, tally: Tally): RolloutDecision | undefined {
  const { want } = limits;
  const { ready, unready, unproven, leaving } = tally;
  if (unready > 0)
    return waitFor(
      'notReady',
      'replicas',
      `${ready} of ${want} replicas are ready, ${unready} not yet${whyNoRoom(limits, tally)}`,
    );
  if (unproven > 0)
    return waitFor(
      'unproven',
      'replicas',
      `${ready} of ${want} replicas count as ready; ${unproven} not for long enough, or on silent nodes`,
    );
  if (leaving > 0) return waitFor('stopping', 'replicas', `${replicas(leaving)} still stopping`);
  if (tally.readyVictims.length === 0 && tally.missing.length === 0) return undefined;
  // Nothing leaving, all ready, and nothing to do: only limits without a move bring that about.
  const text = describeImpossible(limits);
  assert(text !== undefined, 'a rollout that can move is never without steps');
  return waitFor('impossibleLimits', 'spec', text);
}

/**
 * What has to happen when a new replica finds no node, and those whose place it could take may not
 * go first: time alone brings nothing then. Empty while something else may make room.
 */
function whyNoRoom(
  { minAvailable }: RolloutLimits,
  { unplaced, ready, leaving, readyVictims }: Tally,
): string {
  if (unplaced === undefined || leaving > 0 || readyVictims.length === 0 || ready > minAvailable)
    return '';
  return (
    `: ${unplaced}; min_available ${minAvailable} lets no other go first: make room, ` +
    'or allow fewer ready ones meanwhile by min_available or max_unavailable'
  );
}

/** A paused rollout with something left to roll. */
export const pausedWith = (others: number): RolloutDecision =>
  waitFor('paused', 'spec', `paused with ${replicas(others)} of other versions`);

export const replicas = (count: number): string =>
  count === 1 ? '1 replica' : `${count} replicas`;
