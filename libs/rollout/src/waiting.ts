import { assert } from '@cloudless/base';
import type { RolloutDecision, WaitReason, WakeOn } from './decision.js';
import { describeImpossible, type RolloutLimits } from './limits.js';
import type { Tally } from './tally.js';

export function waitFor(
  kind: WaitReason['kind'],
  wakeOn: WakeOn['kind'],
  text: string,
): RolloutDecision {
  return { kind: 'waiting', reason: { kind, text }, wakeOn: { kind: wakeOn } };
}

/**
 * Why a set of replicas waits; the longest wait is named first, as stops end by themselves.
 * Undefined when the set is in its wanted state.
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
      `${ready} of ${want} replicas are available; ${unproven} not yet: ready for less than min_ready_duration, or on silent nodes`,
    );
  if (leaving > 0) return waitFor('stopping', 'replicas', `${replicas(leaving)} still stopping`);
  if (tally.readyVictims.length === 0 && tally.missing.length === 0) return undefined;
  // No replica is stopping, all are available, and no step is possible: only impossible limits lead
  // here.
  const text = describeImpossible(limits);
  assert(text !== undefined, 'limits that allow a step always lead to one');
  return waitFor('impossibleLimits', 'spec', text);
}

/**
 * What a user has to do when no node fits a new replica and `minAvailable` prevents stopping
 * another one first; empty while something else may free resources.
 */
function whyNoRoom(
  { minAvailable }: RolloutLimits,
  { unplaced, ready, leaving, readyVictims }: Tally,
): string {
  if (unplaced === undefined || leaving > 0 || readyVictims.length === 0 || ready > minAvailable)
    return '';
  return (
    `: ${unplaced}; min_available ${minAvailable} allows no stop before the new replica is ready: ` +
    'free resources, or lower min_available, or raise max_unavailable'
  );
}

export const pausedWith = (others: number): RolloutDecision =>
  waitFor('paused', 'spec', `paused with ${replicas(others)} of other versions`);

export const replicas = (count: number): string =>
  count === 1 ? '1 replica' : `${count} replicas`;
