import type { NodeTable } from '../columns/node-table.js';
import { USE_ROWS, type UseIndex } from '../columns/use-index.js';
import type { Slot } from '../columns/value-column.js';
import {
  BALANCE_DISTANCE,
  findLargestDistance,
  HIGH_UTILISATION,
  HIGH_USE_DISTANCE,
  TARGET_UTILISATION,
} from '../scoring/score.js';
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

/** More than the rounding errors of a sum of scores. */
const MARGIN = 1e-9;
/** A share above this one counts as highly used in spite of rounding errors. */
const HIGH = HIGH_UTILISATION + MARGIN;

/**
 * With fewer allowed nodes, a scan of all of them costs less than a search in the index by use.
 */
const MIN_INDEXED_NODES = 256;

/** Finds the best node for requests that come once. Keeps no result, only room for the next. */
export class NodeScan {
  private readonly limits = new KindLimits();
  private found = new Int32Array(0);

  constructor(private readonly table: NodeTable) {}

  /**
   * Finds the best of the nodes that the filters over nodes allow. The score of the result is
   * {@link EXCLUDED} when the replica fits on none. A required spread is not considered: when the
   * best node is in a full domain, so are all others.
   */
  findBest(plan: RequestPlan, ranking: Ranking): ScanResult {
    return plan.isSimple ? this.scanSimple(plan, ranking) : scanAny(plan, ranking);
  }

  private scanSimple(plan: RequestPlan, ranking: Ranking): ScanResult {
    const { table, limits } = this;
    const { match } = plan;
    limits.prepare(plan, table);
    const scan = new SimpleScan(plan, table, ranking, limits);
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
    else this.scanByUse(scan, plan, index);
    match.lastBest = scan.best;
    return { slot: scan.best, score: scan.bestScore, examined: scan.examined };
  }

  private scanByUse(scan: SimpleScan, plan: RequestPlan, index: UseIndex): void {
    const { table } = this;
    if (this.found.length < table.capacity) this.found = new Int32Array(table.capacity);
    const sizes = table.sizes.capacities.length;
    for (let size = 0; size < sizes; size += 1) this.scanSize(size, scan, plan, index);
  }

  /** Looks at the nodes of a size from the best use on outwards: what is found narrows the rest. */
  private scanSize(size: number, scan: SimpleScan, plan: RequestPlan, index: UseIndex): void {
    const { limits, found } = this;
    const { cpuMillis, memoryBytes } = plan.request.resources;
    const { cpuMillis: cpu = 0, memoryBytes: memory = 0 } = this.table.sizes.capacities[size] ?? {};
    const cpuChange = cpuMillis / Math.max(1, cpu);
    const memoryChange = memoryBytes / Math.max(1, memory);
    const { allowed } = plan.match;
    const search = {
      cpu: TARGET_UTILISATION - cpuChange,
      memory: TARGET_UTILISATION - memoryChange,
      distance: limits.largestOf(size) + MARGIN,
      skew: cpuChange - memoryChange,
      highCpu: HIGH_UTILISATION - cpuChange + MARGIN,
      highMemory: HIGH_UTILISATION - memoryChange + MARGIN,
    };
    const start = index.rowOf(search.cpu);
    for (let step = 0; step < USE_ROWS; step += 1) {
      if ((step - 1) / USE_ROWS > search.distance + BALANCE_DISTANCE) break;
      const [above, below] = [start + step, start - step];
      if (above < USE_ROWS) scan.look(found, index.collectRow(size, above, search, allowed, found));
      if (step > 0 && below >= 0)
        scan.look(found, index.collectRow(size, below, search, allowed, found));
      search.distance = limits.largestOf(size) + MARGIN;
    }
    scan.look(found, index.collectIdle(size, search, allowed, found));
  }
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
  private bestCpu: number;
  private bestMemory: number;
  private bestKind: number;
  /** Nodes that {@link look} was given. */
  examined = 0;

  constructor(
    private readonly plan: RequestPlan,
    private readonly table: NodeTable,
    private readonly ranking: Ranking,
    private readonly limits: KindLimits,
  ) {
    const { usedCpu, usedMemory, kindOf } = table;
    // The node that won last is a good one still, and lets the loop pass most others at once.
    const best = plan.match.lastBest;
    this.best = best;
    this.bestScore = plan.score(best);
    this.bestCpu = usedCpu[best] ?? 0;
    this.bestMemory = usedMemory[best] ?? 0;
    this.bestKind = this.bestScore === EXCLUDED ? -1 : (kindOf[best] ?? 0);
    limits.raise(this.bestScore);
  }

  /** Looks at the first `count` of the allowed slots. */
  look(slots: Int32Array, count: number): void {
    if (count === 0) return;
    const { plan, table, ranking, limits } = this;
    const { kindOf, usedCpu, usedMemory, imbalance, freeCpu } = table;
    const { cpuMillis, memoryBytes } = plan.request.resources;
    const { minFreeCpu } = plan;
    const { cpuShares, memoryShares } = table.kinds;
    const { distances } = limits;
    const { isFlat } = ranking;
    this.examined += count;
    let { best, bestScore, bestCpu, bestMemory, bestKind } = this;
    for (let index = 0; index < count; index += 1) {
      const slot = slots[index] ?? 0;
      // On a full cluster, most nodes are passed by this alone.
      if ((freeCpu[slot] ?? 0) < minFreeCpu) continue;
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
          Math.abs(memoryShare - TARGET_UTILISATION) +
          (cpuShare > HIGH || memoryShare > HIGH ? HIGH_USE_DISTANCE : 0) -
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
  distances = new Float64Array(0);
  private count = 0;
  private weight = 0;
  private score = EXCLUDED;
  /** The score without utilisation, plus a margin. */
  private fixedScores = new Float64Array(0);
  /** The largest fixed score of the kinds of a size. */
  private largestFixed = new Float64Array(0);

  /** Begins the scan for another request. */
  prepare(plan: RequestPlan, table: NodeTable): void {
    const { classIds, sizeIds } = table.kinds;
    this.count = classIds.length;
    this.weight = plan.weights.utilisation;
    if (this.count > this.distances.length) {
      this.distances = new Float64Array(this.count * 2);
      this.fixedScores = new Float64Array(this.count * 2);
    }
    const sizes = table.sizes.capacities.length;
    if (sizes > this.largestFixed.length) this.largestFixed = new Float64Array(sizes * 2);
    this.largestFixed.fill(EXCLUDED);
    const { fixedScores, largestFixed } = this;
    const { base, penalty, taints } = plan.match.classScores;
    for (let kind = 0; kind < this.count; kind += 1) {
      const classId = classIds[kind] ?? 0;
      const sizeId = sizeIds[kind] ?? 0;
      const score = (base[classId] ?? 0) + (plan.costs[sizeId] ?? 0) - (penalty[classId] ?? 0);
      const fixed = score + (taints[classId] ?? 0) + MARGIN;
      fixedScores[kind] = fixed;
      if (fixed > (largestFixed[sizeId] ?? EXCLUDED)) largestFixed[sizeId] = fixed;
    }
  }

  /** Returns the largest of {@link distances} of the kinds of a size; -Infinity when none has it. */
  largestOf(size: number): number {
    const fixed = this.largestFixed[size] ?? EXCLUDED;
    return fixed === EXCLUDED ? -Infinity : this.distanceFor(this.score - fixed);
  }

  /** Only nodes that may reach `score` are of interest from now on. */
  raise(score: number): void {
    this.score = score;
    for (let kind = 0; kind < this.count; kind += 1)
      // Not a number for a kind that the filters exclude, as long as nothing was found.
      this.distances[kind] = this.distanceFor(score - (this.fixedScores[kind] ?? 0));
  }

  private distanceFor(missing: number): number {
    const { weight } = this;
    if (weight > 0) return findLargestDistance(missing / weight);
    return missing > 0 ? -Infinity : Infinity;
  }
}
