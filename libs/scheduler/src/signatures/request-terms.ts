import { NO_VALUE, type Slot } from '../columns/value-column.js';
import { matchesWorkload } from '../filters/workload-terms.js';
import { toLabelMap, type LabelMap } from '../input/labels.js';
import type { FullRequest, WorkloadTerm } from '../input/request.js';
import type { DomainCounts } from '../reservations/domain-counts.js';
import { repelsWorkload, type RepelTerm, type TermIndex } from '../reservations/term-index.js';

/** One workload term of a request with the counts of the replicas that the term matches. */
interface RequestTerm {
  readonly counts: DomainCounts;
  /** Weight of a preferred term; 0 for a required one. */
  readonly weight: number;
  /** True when placements of the request count too. */
  readonly matchesOwnWorkload: boolean;
}

/** Workload affinity and anti-affinity of one request, in both directions. */
export class RequestTerms {
  private readonly affinity: readonly RequestTerm[];
  private readonly antiAffinity: readonly RequestTerm[];
  /** Terms of existing replicas that keep the request away. */
  private readonly repelledBy: DomainCounts[] = [];
  /** Counts of affinity terms that allow every node until the workload's own first replica. */
  readonly openingCounts: readonly DomainCounts[];
  private readonly labels: LabelMap;
  private seenRepels: number;

  constructor(
    private readonly request: FullRequest,
    private readonly index: TermIndex,
  ) {
    this.labels = toLabelMap(request.labels);
    this.affinity = request.workloadAffinity.map((term) => this.toTerm(term, 'staying'));
    this.antiAffinity = request.workloadAntiAffinity.map((term) => this.toTerm(term, 'all'));
    this.openingCounts = this.affinity.flatMap(({ counts, matchesOwnWorkload, weight }) =>
      matchesOwnWorkload && weight === 0 ? [counts] : [],
    );
    this.seenRepels = index.repels.length;
    this.addRepels(index.listRepels(this.labels));
  }

  /** True when no term decides anything. */
  isEmpty = true;

  /** True when a preferred term may change scores. */
  get hasPreferences(): boolean {
    return [...this.affinity, ...this.antiAffinity].some(({ weight }) => weight > 0);
  }

  /**
   * Returns true when the terms decide nothing yet, on any node: nothing that they match, and that
   * matches them, is reserved, and every required affinity may start anywhere.
   */
  haveNoEffect(slots: readonly Slot[]): boolean {
    return (
      this.repelledBy.every(({ occupied }) => occupied === 0) &&
      this.antiAffinity.every(({ counts }) => counts.occupied === 0) &&
      this.affinity.every(
        ({ counts, weight, matchesOwnWorkload }) =>
          counts.occupied === 0 &&
          (weight > 0 ||
            (matchesOwnWorkload &&
              slots.every((slot) => counts.column.valueOf[slot] !== NO_VALUE))),
      )
    );
  }

  /** The counts that decide the result. */
  get allCounts(): readonly DomainCounts[] {
    return [
      ...this.affinity.map(({ counts }) => counts),
      ...this.antiAffinity.map(({ counts }) => counts),
      ...this.repelledBy,
    ];
  }

  /**
   * Looks at the terms of replicas that are new since the last call.
   * @returns True when one of them concerns the request.
   */
  findRepels(): boolean {
    const { repels } = this.index;
    const isNew = repels.slice(this.seenRepels);
    this.seenRepels = repels.length;
    return this.addRepels(isNew);
  }

  private addRepels(candidates: readonly RepelTerm[]): boolean {
    let found = false;
    for (const repel of candidates) {
      if (!repelsWorkload(repel, this.request.namespace, this.labels)) continue;
      this.repelledBy.push(repel.counts);
      found = true;
    }
    this.isEmpty = this.affinity.length + this.antiAffinity.length + this.repelledBy.length === 0;
    return found;
  }

  /** Returns true when all required terms allow the node of the slot. */
  allow(slot: Slot): boolean {
    for (const counts of this.repelledBy) if (counts.hasReplica(slot)) return false;
    for (const { counts, weight } of this.antiAffinity)
      if (weight === 0 && counts.hasReplica(slot)) return false;
    for (const { counts, weight, matchesOwnWorkload } of this.affinity) {
      if (weight > 0 || counts.hasReplica(slot)) continue;
      if (!matchesOwnWorkload || counts.occupied > 0) return false;
      if (counts.column.valueOf[slot] === NO_VALUE) return false;
    }
    return true;
  }

  /** Sums the weights of preferred affinity terms that match a replica in the slot's domain. */
  affinityWeight(slot: Slot): number {
    return sumWeights(this.affinity, slot);
  }

  antiAffinityWeight(slot: Slot): number {
    return sumWeights(this.antiAffinity, slot);
  }

  private toTerm(term: WorkloadTerm, side: 'staying' | 'all'): RequestTerm {
    const { namespace } = this.request;
    return {
      counts: this.index.count(term, namespace, side),
      weight: term.mode === 'preferred' ? term.weight : 0,
      matchesOwnWorkload: matchesWorkload(term, namespace, namespace, this.labels),
    };
  }
}

function sumWeights(terms: readonly RequestTerm[], slot: Slot): number {
  let sum = 0;
  for (const { counts, weight } of terms) if (weight > 0 && counts.hasReplica(slot)) sum += weight;
  return sum;
}
