import { copyOf, type NodeTable } from '../columns/node-table.js';
import type { Slot } from '../columns/value-column.js';
import { hostPortKey } from '../input/host-ports.js';
import type { FullRequest } from '../input/request.js';
import type { Ledger } from '../reservations/ledger.js';
import {
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
  /** The custom resources that the request asks for, and their amounts. */
  private readonly custom: readonly (readonly [string, number])[];
  private readonly needsMore: boolean;
  private readonly portKeys: readonly string[];
  /** Weighted cost term by size of the machine. */
  costs = new Float64Array(4);
  /** The same without the weight. */
  private costTerms = new Float64Array(4);
  private knownSizes = 0;
  /** The newest terms by class: many nodes of a class are in an equal state. */
  private readonly lastTerms: ScoreTerms[] = [];

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
    this.custom = Object.entries(resources.custom);
    this.needsMore =
      resources.storageBytes + resources.bandwidthBps + resources.gpus + this.custom.length > 0;
    this.portKeys = hostPorts.map(hostPortKey);
    this.refresh();
  }

  /** Brings what was prepared up to date with the nodes. */
  refresh(): void {
    this.match.refresh();
    const { capacities } = this.table.sizes;
    if (this.knownSizes === capacities.length) return;
    if (capacities.length > this.costs.length) {
      this.costs = copyOf(this.costs, capacities.length * 2);
      this.costTerms = copyOf(this.costTerms, capacities.length * 2);
    }
    for (; this.knownSizes < capacities.length; this.knownSizes += 1) {
      const capacity = capacities[this.knownSizes];
      if (capacity === undefined) continue;
      const cost = scoreCost({ capacity }, this.request.resources);
      this.costTerms[this.knownSizes] = cost;
      this.costs[this.knownSizes] = this.weights.cost * cost;
    }
  }

  /** True when the score depends on CPU and memory alone. */
  get isSimple(): boolean {
    return (
      !this.needsMore &&
      this.portKeys.length === 0 &&
      this.terms.isEmpty &&
      this.match.affinityWeight === undefined &&
      this.match.antiAffinityWeight === undefined
    );
  }

  /** Returns true when the slot's node has room for one more replica by their number. */
  hasRoom(slot: Slot): boolean {
    return (this.table.replicasLeft[slot] ?? 0) > 0;
  }

  /**
   * Returns the score of one more replica on the slot's node; {@link EXCLUDED} when the replica
   * does not fit. A required spread is not considered.
   */
  score(slot: Slot): number {
    const { table, match } = this;
    if (match.allowed[slot] !== 1 || !this.hasRoom(slot)) return EXCLUDED;
    if ((table.freeCpu[slot] ?? 0) < this.minFreeCpu) return EXCLUDED;
    if ((table.freeMemory[slot] ?? 0) < this.minFreeMemory) return EXCLUDED;
    if (this.needsMore && this.lacksMore(slot)) return EXCLUDED;
    if (this.portKeys.length > 0 && this.ledger.ports.isHeld(slot, this.portKeys)) return EXCLUDED;
    if (!this.terms.isEmpty && !this.terms.allow(slot)) return EXCLUDED;
    const classId = table.classOf[slot] ?? 0;
    const { base, penalty, taints } = match.classScores;
    const affinity = this.affinityWeight(slot);
    const antiAffinity = this.antiAffinityWeight(slot);
    return (
      (base[classId] ?? 0) +
      (this.costs[table.sizeOf[slot] ?? 0] ?? 0) +
      this.weights.utilisation * this.utilisation(slot) -
      (penalty[classId] ?? 0) +
      (affinity / 100) * 0.2 +
      (0 - (antiAffinity / 100) * 0.3) +
      (taints[classId] ?? 0)
    );
  }

  /** Writes {@link score} of each of `slots` to `scores`, by slot. */
  scoreAll(slots: readonly Slot[], scores: Float64Array): void {
    for (const slot of slots) this.writeScore(slot, scores);
  }

  /** Writes {@link score} of a slot to `scores`: a returned number would need memory of its own. */
  writeScore(slot: Slot, scores: Float64Array): void {
    if (this.isSimple) this.writeSimpleScore(slot, scores);
    else scores[slot] = this.score(slot);
  }

  /** The same sums as in {@link score} without what a simple request has not. */
  private writeSimpleScore(slot: Slot, scores: Float64Array): void {
    const { table, match } = this;
    const { cpuMillis, memoryBytes } = this.request.resources;
    const fits =
      match.allowed[slot] === 1 &&
      (table.replicasLeft[slot] ?? 0) > 0 &&
      (table.freeCpu[slot] ?? 0) >= this.minFreeCpu &&
      (table.freeMemory[slot] ?? 0) >= this.minFreeMemory;
    if (!fits) {
      scores[slot] = EXCLUDED;
      return;
    }
    // As in `utilisation`, whose call would cost a tenth of the placements per second.
    const utilisation = scoreUtilisation(
      table.usedCpu[slot] ?? 0,
      table.usedMemory[slot] ?? 0,
      table.imbalance[slot] ?? 0,
      cpuMillis,
      memoryBytes,
      table.capacityCpu[slot] ?? 0,
      table.capacityMemory[slot] ?? 0,
    );
    const classId = table.classOf[slot] ?? 0;
    const { base, penalty, taints } = match.classScores;
    const fixed = (base[classId] ?? 0) + (this.costs[table.sizeOf[slot] ?? 0] ?? 0);
    scores[slot] =
      fixed +
      this.weights.utilisation * utilisation -
      (penalty[classId] ?? 0) +
      (taints[classId] ?? 0);
  }

  /**
   * Returns the terms of {@link score}, for a slot on which the replica fits. Slots with equal
   * terms may share an object.
   */
  scoreTerms(slot: Slot): ScoreTerms {
    const classId = this.table.classOf[slot] ?? 0;
    const cost = this.costTerms[this.table.sizeOf[slot] ?? 0] ?? 0;
    const utilisation = this.utilisation(slot);
    const affinity = (this.affinityWeight(slot) / 100) * 0.2;
    const antiAffinity = 0 - (this.antiAffinityWeight(slot) / 100) * 0.3;
    const last = this.lastTerms[classId];
    if (
      last?.utilisation === utilisation &&
      last.cost === cost &&
      last.affinity === affinity &&
      last.antiAffinity === antiAffinity
    )
      return last;
    const { locality, reliability, networkPenalty, taints } = this.match.classScores;
    const terms = {
      locality: locality[classId] ?? 0,
      reliability: reliability[classId] ?? 0,
      cost,
      utilisation,
      networkPenalty: networkPenalty[classId] ?? 0,
      affinity,
      antiAffinity,
      taints: taints[classId] ?? 0,
    };
    this.lastTerms[classId] = terms;
    return terms;
  }

  private utilisation(slot: Slot): number {
    const { table } = this;
    const { cpuMillis, memoryBytes } = this.request.resources;
    return scoreUtilisation(
      table.usedCpu[slot] ?? 0,
      table.usedMemory[slot] ?? 0,
      table.imbalance[slot] ?? 0,
      cpuMillis,
      memoryBytes,
      table.capacityCpu[slot] ?? 0,
      table.capacityMemory[slot] ?? 0,
    );
  }

  private affinityWeight(slot: Slot): number {
    const ofNode = this.match.affinityWeight?.[slot] ?? 0;
    return this.terms.isEmpty ? ofNode : ofNode + this.terms.affinityWeight(slot);
  }

  private antiAffinityWeight(slot: Slot): number {
    const ofNode = this.match.antiAffinityWeight?.[slot] ?? 0;
    return this.terms.isEmpty ? ofNode : ofNode + this.terms.antiAffinityWeight(slot);
  }

  private lacksMore(slot: Slot): boolean {
    const { table } = this;
    return (
      (table.freeStorage[slot] ?? 0) < this.minFreeStorage ||
      (table.freeBandwidth[slot] ?? 0) < this.minFreeBandwidth ||
      (table.freeGpus[slot] ?? 0) < this.minFreeGpus ||
      (this.custom.length > 0 && this.lacksCustom(slot))
    );
  }

  private lacksCustom(slot: Slot): boolean {
    for (const [name, amount] of this.custom)
      if ((this.table.custom.freeOf(name)[slot] ?? 0) < amount) return true;
    return false;
  }
}

/** A resource that is not requested never excludes, even on a node that has shrunk. */
function toMinFree(need: number): number {
  return need > 0 ? need : -Infinity;
}
