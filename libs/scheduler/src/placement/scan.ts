import type { NodeTable } from '../columns/node-table.js';
import type { Slot } from '../columns/value-column.js';
import { BALANCE_DISTANCE, findLargestDistance, TARGET_UTILISATION } from '../scoring/score.js';
import { EXCLUDED } from '../signatures/class-scores.js';
import type { RequestPlan } from '../signatures/request-plan.js';
import type { Ranking } from '../trees/ranking.js';

/** The best slot for one replica. */
export interface ScanResult {
  readonly slot: Slot;
  readonly score: number;
  /** Number of nodes that were looked at. */
  readonly examined: number;
}

/**
 * Finds the best of the nodes that the filters over nodes allow. The score of the result is
 * {@link EXCLUDED} when the replica fits on none. A required spread is not considered: when the
 * best node is in a full domain, so are all others.
 */
export function scanForBest(plan: RequestPlan, table: NodeTable, ranking: Ranking): ScanResult {
  return plan.isSimple ? scanSimple(plan, table, ranking) : scanAny(plan, ranking);
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
  return { slot: best, score: bestScore, examined: count };
}

/** More than the rounding errors of a sum of scores. */
const MARGIN = 1e-9;

/**
 * Allowed nodes from which on a look at the nodes by their use costs less than one at all of them.
 */
const MIN_INDEXED_NODES = 1_024;

function scanSimple(plan: RequestPlan, table: NodeTable, ranking: Ranking): ScanResult {
  const scan = new SimpleScan(plan, table, ranking);
  const { match } = plan;
  const isIndexed = ranking.isFlat && match.count >= MIN_INDEXED_NODES;
  const index = isIndexed ? table.byUse : undefined;
  const zones = ranking.leadingZones;
  if (zones !== undefined) {
    // A zone with more replicas than the zone of the best node has no better node.
    const byZone = match.slotsByZone(zones.of, zones.counts.length);
    const countOf = (zone: number): number => zones.counts[zone] ?? 0;
    const order = Array.from(byZone.keys()).sort((a, b) => countOf(a) - countOf(b));
    for (const zone of order) {
      const slots = byZone[zone] ?? match.slots;
      const canSkip =
        scan.bestScore !== EXCLUDED && countOf(zones.of[scan.best] ?? 0) < countOf(zone);
      if (!canSkip) scan.look(slots, slots.length);
    }
  } else if (index === undefined) scan.look(match.slots, match.count);
  else {
    const { cpuMillis, memoryBytes } = plan.request.resources;
    for (const [size, capacity] of table.sizes.capacities.entries()) {
      const center = {
        cpu: TARGET_UTILISATION - cpuMillis / Math.max(1, capacity.cpuMillis),
        memory: TARGET_UTILISATION - memoryBytes / Math.max(1, capacity.memoryBytes),
      };
      const distance = scan.limits.findLargestOf(size) + BALANCE_DISTANCE + MARGIN;
      const found = match.borrowBuffer();
      scan.look(found, index.collect(size, center, distance, match.allowed, found));
    }
  }
  match.lastBest = scan.best;
  return { slot: scan.best, score: scan.bestScore, examined: scan.examined };
}

/**
 * The same for a request whose score depends on CPU and memory alone: the loop that decides how
 * many different requests per second are placed. A node that is too far from the preferred
 * utilisation to reach the best score so far is passed after two multiplications and no division;
 * the others are filtered and scored exactly. For a workload without replicas, nodes that are much
 * too far are not even looked at.
 */
class SimpleScan {
  best: Slot;
  bestScore: number;
  readonly limits: KindLimits;
  private bestCpu: number;
  private bestMemory: number;
  private bestKind: number;
  /** Nodes that {@link look} was given. */
  examined = 0;

  constructor(
    private readonly plan: RequestPlan,
    private readonly table: NodeTable,
    private readonly ranking: Ranking,
  ) {
    const { usedCpu, usedMemory, kindOf } = table;
    // The node that won last is a good one still, and lets the loop pass most others at once.
    const best = plan.match.lastBest;
    this.best = best;
    this.bestScore = plan.score(best);
    this.bestCpu = usedCpu[best] ?? 0;
    this.bestMemory = usedMemory[best] ?? 0;
    this.bestKind = this.bestScore === EXCLUDED ? -1 : (kindOf[best] ?? 0);
    this.limits = new KindLimits(plan, table);
    this.limits.raise(this.bestScore);
  }

  /** Looks at the first `count` of the allowed slots. */
  look(slots: Int32Array, count: number): void {
    const { plan, table, ranking, limits } = this;
    const { kindOf, usedCpu, usedMemory, imbalance } = table;
    const { cpuMillis, memoryBytes } = plan.request.resources;
    const { cpuShares, memoryShares } = table.kinds;
    const { distances } = limits;
    const { isFlat } = ranking;
    this.examined += count;
    let { best, bestScore, bestCpu, bestMemory, bestKind } = this;
    for (let index = 0; index < count; index += 1) {
      const slot = slots[index] ?? 0;
      const order = isFlat || bestKind < 0 ? 0 : ranking.compareCounts(slot, best);
      if (order > 0) continue;
      const kind = kindOf[slot] ?? 0;
      const cpu = usedCpu[slot] ?? 0;
      const memory = usedMemory[slot] ?? 0;
      if (order === 0) {
        const cpuShare = (cpu + cpuMillis) * (cpuShares[kind] ?? 0);
        const memoryShare = (memory + memoryBytes) * (memoryShares[kind] ?? 0);
        const distance =
          Math.abs(cpuShare - TARGET_UTILISATION) +
          Math.abs(memoryShare - TARGET_UTILISATION) -
          (distances[kind] ?? 0);
        if (distance > BALANCE_DISTANCE) continue;
        if (distance > 0 && Math.abs(cpuShare - memoryShare) >= (imbalance[slot] ?? 0)) continue;
        // Nodes in an equal state have equal scores: only the node id may decide between them.
        if (cpu === bestCpu && memory === bestMemory && kind === bestKind) {
          if (ranking.hasSmallerId(slot, best) && plan.hasRoom(slot)) best = slot;
          continue;
        }
      }
      const score = plan.score(slot);
      if (!ranking.isBefore(slot, score, best, bestScore)) continue;
      limits.raise(score);
      best = slot;
      bestScore = score;
      bestCpu = cpu;
      bestMemory = memory;
      bestKind = kind;
    }
    this.best = best;
    this.bestScore = bestScore;
    this.bestCpu = bestCpu;
    this.bestMemory = bestMemory;
    this.bestKind = bestKind;
  }
}

/** What all nodes of a kind have in common for one request, by kind. */
class KindLimits {
  /** Largest distance from the preferred utilisation at which a node may be the best one. */
  readonly distances: Float64Array;
  /** The score without utilisation, plus a margin. */
  private readonly fixedScores: Float64Array;
  private readonly sizeIds: readonly number[];

  constructor(
    private readonly plan: RequestPlan,
    table: NodeTable,
  ) {
    const { classIds, sizeIds } = table.kinds;
    this.sizeIds = sizeIds;
    const { base, penalty, taints } = plan.match.classScores;
    this.distances = new Float64Array(classIds.length).fill(Infinity);
    this.fixedScores = new Float64Array(classIds.length);
    for (let kind = 0; kind < classIds.length; kind += 1) {
      const classId = classIds[kind] ?? 0;
      const sizeId = sizeIds[kind] ?? 0;
      const score = (base[classId] ?? 0) + (plan.costs[sizeId] ?? 0) - (penalty[classId] ?? 0);
      this.fixedScores[kind] = score + (taints[classId] ?? 0) + MARGIN;
    }
  }

  /** Returns the largest of {@link distances} of the kinds of a size; -Infinity when none has it. */
  findLargestOf(size: number): number {
    let largest = -Infinity;
    for (let kind = 0; kind < this.sizeIds.length; kind += 1) {
      // Not a number for a kind that the filters exclude.
      const distance = this.distances[kind] ?? 0;
      if (this.sizeIds[kind] === size && distance > largest) largest = distance;
    }
    return largest;
  }

  /** Only nodes that may reach `score` are of interest from now on. */
  raise(score: number): void {
    const weight = this.plan.weights.utilisation;
    for (let kind = 0; kind < this.distances.length; kind += 1) {
      const missing = score - (this.fixedScores[kind] ?? 0);
      this.distances[kind] =
        weight > 0 ? findLargestDistance(missing / weight) : missing > 0 ? -Infinity : Infinity;
    }
  }
}
