import type { NodeTable } from '../columns/node-table.js';
import type { Slot } from '../columns/value-column.js';
import { hostPortKey } from '../input/host-ports.js';
import type { FullRequest } from '../input/request.js';
import type { Ledger } from '../reservations/ledger.js';
import {
  computeScoreTerms,
  scoreCost,
  scoreUtilisation,
  type ScoreTerms,
  type ScoreWeights,
} from '../scoring/score.js';
import { EXCLUDED } from './class-scores.js';
import type { NodeMatch } from './node-match.js';
import { RequestTerms } from './request-terms.js';

/**
 * One request, prepared so that the score on a node takes a few loads and no allocation. The score
 * equals `computeScore` in every bit: the same sums in the same order.
 */
export class RequestPlan {
  readonly terms: RequestTerms;
  /** Free amount that a node needs; -Infinity when the request asks for none. */
  readonly minFreeCpu: number;
  readonly minFreeMemory: number;
  private readonly minFreeStorage: number;
  private readonly minFreeBandwidth: number;
  private readonly minFreeGpus: number;
  private readonly needsMore: boolean;
  private readonly portKeys: readonly string[];
  /** Weighted cost term by size of the machine. */
  costs = new Float64Array(4);
  private knownSizes = 0;

  constructor(
    readonly request: FullRequest,
    readonly match: NodeMatch,
    readonly weights: ScoreWeights,
    private readonly table: NodeTable,
    private readonly ledger: Ledger,
  ) {
    const { resources, hostPorts } = request;
    this.terms = new RequestTerms(request, ledger.terms);
    this.minFreeCpu = toMinFree(resources.cpuMillis);
    this.minFreeMemory = toMinFree(resources.memoryBytes);
    this.minFreeStorage = toMinFree(resources.storageBytes);
    this.minFreeBandwidth = toMinFree(resources.bandwidthBps);
    this.minFreeGpus = toMinFree(resources.gpus);
    this.needsMore = resources.storageBytes + resources.bandwidthBps + resources.gpus > 0;
    this.portKeys = hostPorts.map(hostPortKey);
    this.refresh();
  }

  /** Brings what was prepared up to date with the nodes. */
  refresh(): void {
    this.match.refresh();
    const { capacities } = this.table.sizes;
    if (this.knownSizes === capacities.length) return;
    if (capacities.length > this.costs.length) {
      const grown = new Float64Array(capacities.length * 2);
      grown.set(this.costs);
      this.costs = grown;
    }
    for (; this.knownSizes < capacities.length; this.knownSizes += 1) {
      const capacity = capacities[this.knownSizes];
      if (capacity === undefined) continue;
      this.costs[this.knownSizes] =
        this.weights.cost * scoreCost({ capacity }, this.request.resources);
    }
  }

  /** True when the score depends on more than amounts of CPU and memory. */
  get isSimple(): boolean {
    return (
      !this.needsMore &&
      this.portKeys.length === 0 &&
      this.terms.isEmpty &&
      this.match.affinityWeight === undefined &&
      this.match.antiAffinityWeight === undefined
    );
  }

  /**
   * Returns the score of one more replica on the slot's node; {@link EXCLUDED} when the replica
   * does not fit. A required spread is not considered.
   */
  score(slot: Slot): number {
    const { table, match } = this;
    if (match.allowed[slot] !== 1 || (table.replicasLeft[slot] ?? 0) <= 0) return EXCLUDED;
    if ((table.freeCpu[slot] ?? 0) < this.minFreeCpu) return EXCLUDED;
    if ((table.freeMemory[slot] ?? 0) < this.minFreeMemory) return EXCLUDED;
    if (this.needsMore && this.lacksMore(slot)) return EXCLUDED;
    if (this.portKeys.length > 0 && this.ledger.ports.isHeld(slot, this.portKeys)) return EXCLUDED;
    const hasTerms = !this.terms.isEmpty;
    if (hasTerms && !this.terms.allow(slot)) return EXCLUDED;
    const classId = table.classOf[slot] ?? 0;
    const { base, penalty, taints } = match.classScores;
    const { resources } = this.request;
    const utilisation = scoreUtilisation(
      table.usedCpu[slot] ?? 0,
      table.usedMemory[slot] ?? 0,
      table.imbalance[slot] ?? 0,
      resources.cpuMillis,
      resources.memoryBytes,
      table.capacityCpu[slot] ?? 0,
      table.capacityMemory[slot] ?? 0,
    );
    const affinity =
      (match.affinityWeight?.[slot] ?? 0) + (hasTerms ? this.terms.affinityWeight(slot) : 0);
    const antiAffinity =
      (match.antiAffinityWeight?.[slot] ?? 0) +
      (hasTerms ? this.terms.antiAffinityWeight(slot) : 0);
    return (
      (base[classId] ?? 0) +
      (this.costs[table.sizeOf[slot] ?? 0] ?? 0) +
      this.weights.utilisation * utilisation -
      (penalty[classId] ?? 0) +
      (affinity / 100) * 0.2 +
      (0 - (antiAffinity / 100) * 0.3) +
      (taints[classId] ?? 0)
    );
  }

  /** Returns the terms of {@link score}, for a slot on which the replica fits. */
  scoreTerms(slot: Slot): ScoreTerms {
    const { table, match, terms, request } = this;
    const node = table.records[slot];
    if (node === undefined) throw new Error('a slot with a score has a node');
    return computeScoreTerms(node, table.allocatedOn(slot), request, {
      affinityWeight: (match.affinityWeight?.[slot] ?? 0) + terms.affinityWeight(slot),
      antiAffinityWeight: (match.antiAffinityWeight?.[slot] ?? 0) + terms.antiAffinityWeight(slot),
      untoleratedTaints: countUntolerated(match.classScores.taints[table.classOf[slot] ?? 0] ?? 0),
    });
  }

  private lacksMore(slot: Slot): boolean {
    const { table } = this;
    return (
      (table.freeStorage[slot] ?? 0) < this.minFreeStorage ||
      (table.freeBandwidth[slot] ?? 0) < this.minFreeBandwidth ||
      (table.freeGpus[slot] ?? 0) < this.minFreeGpus
    );
  }
}

/** A resource that is not requested never excludes, even on a node that has shrunk. */
function toMinFree(need: number): number {
  return need > 0 ? need : -Infinity;
}

/** Returns the number of taints of which each takes 0.1 from the score. */
function countUntolerated(taintTerm: number): number {
  return Math.round(-taintTerm * 10);
}
