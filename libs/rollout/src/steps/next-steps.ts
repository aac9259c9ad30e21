import { assert } from '@cloudless/base';
import { decideBlueGreen } from './blue-green.js';
import type { RolloutDecision } from './decision.js';
import { markMovingAsDraining } from './mark-moving.js';
import type { RolloutObserved, RolloutStrategy } from './observed.js';
import { decideRecreate } from './recreate.js';
import { decideRollingUpdate } from './rolling-update.js';

export type { RolloutDecision, RolloutStep, WaitReason, WakeOn } from './decision.js';

/**
 * Decides the next steps towards `want` available replicas of `version`. One decision may create,
 * scale, update, replace lost and failed replicas, and evict replicas from draining nodes. Pure:
 * the same input in any order gives the same decision.
 * @param observed - Limits resolved by `resolveLimits`, and every replica that still holds
 *   resources. For a deletion, pass limits resolved for 0.
 * @returns Steps that create replicas only up to the maximum of the strategy plus one for each
 *   draining replica, and stop an available replica only while more than `minAvailable` are
 *   available. Unready replicas may always stop; replicas that are not yet available may stop while
 *   the available replicas alone satisfy `minAvailable`. Replicas on lost nodes take no room. Under
 *   blue/green only replicas of the active version count as available.
 */
export function decideNextSteps(observed: RolloutObserved): RolloutDecision {
  const { strategy = ROLLING_UPDATE } = observed;
  // RECREATE creates replicas beside existing ones only to replace draining ones, and only where
  // `minAvailable` permits no stop.
  if (strategy.kind === 'recreate')
    return decideRecreate(markMovingAsDraining({ ...observed, maxSurge: 0 }));
  const marked = markMovingAsDraining(observed);
  if (strategy.kind === 'rollingUpdate') return decideRollingUpdate(marked, strategy.updated);
  assert(observed.globalTargets === undefined, 'blue/green is not for one replica per node');
  return decideBlueGreen(marked, strategy);
}

/** The default strategy. */
const ROLLING_UPDATE: RolloutStrategy = { kind: 'rollingUpdate' };
