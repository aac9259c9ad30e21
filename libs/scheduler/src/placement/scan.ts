import type { Slot } from '../columns/value-column.js';
import { EXCLUDED } from '../signatures/class-scores.js';
import type { RequestPlan } from '../signatures/request-plan.js';
import type { Ranking } from '../trees/ranking.js';

/** The best slot for one replica. */
export interface ScanResult {
  readonly slot: Slot;
  readonly score: number;
}

/**
 * Looks at every node that the filters over nodes allow, and returns the best one; undefined when
 * the replica fits on none. A required spread is not considered: when the best node is in a full
 * domain, so are all others.
 */
export function scanForBest(plan: RequestPlan, ranking: Ranking): ScanResult | undefined {
  const { slots, count } = plan.match;
  let best: Slot = 0;
  let bestScore = EXCLUDED;
  for (let index = 0; index < count; index += 1) {
    const slot = slots[index] ?? 0;
    const score = plan.score(slot);
    if (!ranking.isBefore(slot, score, best, bestScore)) continue;
    best = slot;
    bestScore = score;
  }
  return bestScore === EXCLUDED ? undefined : { slot: best, score: bestScore };
}
