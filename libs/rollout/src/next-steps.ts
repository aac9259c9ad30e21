import { assert } from '@cloudless/base';
import { decideBlueGreen } from './blue-green.js';
import type { RolloutDecision } from './decision.js';
import { withMoves } from './moving.js';
import type { RolloutObserved, RolloutStrategy } from './observed.js';
import { decideRecreate } from './recreate.js';
import { decideRollingUpdate } from './rolling-update.js';

export type { RolloutDecision, RolloutStep, WaitReason, WakeOn } from './decision.js';

/**
 * Decides the next moves towards `want` ready replicas of `version`: creating, scaling, updating,
 * replacing lost and failed replicas, moving those on draining nodes, or all of it at once. Pure:
 * same input in any order, same decision.
 * @param observed - Limits already resolved by `resolveLimits`, and every replica that still holds
 *   resources. For deletion pass limits resolved for 0.
 * @returns Steps that add only up to the ceiling of the strategy and one more for each replica
 *   being drained, and stop a ready replica only while more than `minAvailable` are ready; unready
 *   ones may always go, unproven ones while the ready ones alone hold the floor. Replicas on lost
 *   nodes take no room. Under blue/green only replicas of the active version count as ready.
 */
export function nextSteps(observed: RolloutObserved): RolloutDecision {
  const { strategy = ROLLING_UPDATE } = observed;
  // Nothing but replacements of what is being drained comes beside what a recreate has.
  if (strategy.kind === 'recreate') return decideRecreate(withMoves({ ...observed, maxSurge: 0 }));
  const world = withMoves(observed);
  if (strategy.kind === 'rollingUpdate') return decideRollingUpdate(world, strategy.updated);
  assert(observed.seats === undefined, 'blue/green is not for one replica per node');
  return decideBlueGreen(world, strategy);
}

/** What is done unless something else is asked for. */
const ROLLING_UPDATE: RolloutStrategy = { kind: 'rollingUpdate' };
