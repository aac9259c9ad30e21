import type { NodeTable } from '../columns/node-table.js';
import type { Slot } from '../columns/value-column.js';
import { boundUtilisation, scoreUtilisation } from '../scoring/score.js';
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
export function scanForBest(
  plan: RequestPlan,
  table: NodeTable,
  ranking: Ranking,
): ScanResult | undefined {
  const result = plan.isSimple ? scanSimple(plan, table, ranking) : scanAny(plan, ranking);
  return result.score === EXCLUDED ? undefined : result;
}

function scanAny(plan: RequestPlan, ranking: Ranking): ScanResult {
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
  return { slot: best, score: bestScore };
}

/**
 * The same for a request whose score depends on CPU and memory alone: the loop that decides how
 * many different requests per second are placed. The exact score of a node is computed only when an
 * upper bound, made of the same sums, reaches the best score so far.
 */
function scanSimple(plan: RequestPlan, table: NodeTable, ranking: Ranking): ScanResult {
  const { slots, count, classScores } = plan.match;
  const { base, penalty, taints } = classScores;
  const { costs, minFreeCpu, minFreeMemory } = plan;
  const { classOf, sizeOf, replicasLeft, freeCpu, freeMemory } = table;
  const { usedCpu, usedMemory, capacityCpu, capacityMemory, imbalance } = table;
  const { cpuMillis, memoryBytes } = plan.request.resources;
  const weight = plan.weights.utilisation;
  const { isFlat } = ranking;
  let best: Slot = 0;
  let bestScore = EXCLUDED;
  for (let index = 0; index < count; index += 1) {
    const slot = slots[index] ?? 0;
    if ((freeCpu[slot] ?? 0) < minFreeCpu || (freeMemory[slot] ?? 0) < minFreeMemory) continue;
    if ((replicasLeft[slot] ?? 0) <= 0) continue;
    const order = isFlat || bestScore === EXCLUDED ? 0 : ranking.compareCounts(slot, best);
    if (order > 0) continue;
    const classId = classOf[slot] ?? 0;
    const before = (base[classId] ?? 0) + (costs[sizeOf[slot] ?? 0] ?? 0);
    const after = penalty[classId] ?? 0;
    const cpu = capacityCpu[slot] ?? 0;
    const memory = capacityMemory[slot] ?? 0;
    if (order === 0) {
      const most = boundUtilisation(
        (usedCpu[slot] ?? 0) + cpuMillis,
        (usedMemory[slot] ?? 0) + memoryBytes,
        cpu,
        memory,
      );
      if (before + weight * most - after + (taints[classId] ?? 0) < bestScore) continue;
    }
    const utilisation = scoreUtilisation(
      usedCpu[slot] ?? 0,
      usedMemory[slot] ?? 0,
      imbalance[slot] ?? 0,
      cpuMillis,
      memoryBytes,
      cpu,
      memory,
    );
    const score = before + weight * utilisation - after + (taints[classId] ?? 0);
    if (order < 0 || score > bestScore || ranking.isBefore(slot, score, best, bestScore)) {
      best = slot;
      bestScore = score;
    }
  }
  return { slot: best, score: bestScore };
}
