import type { NodeTable } from '../columns/node-table.js';
import { matchesWorkload } from '../filters/workload-terms.js';
import type { LabelMap } from '../input/labels.js';
import type { WorkloadTerm } from '../input/request.js';
import { DomainCounts } from './domain-counts.js';
import type { EntryColumns } from './entry-columns.js';
import type { LedgerGroup } from './replica-group.js';
import { TermBuckets } from './term-buckets.js';

/**
 * Which replicas a term counts. Affinity counts replicas that are not leaving, because leaving ones
 * are about to end; anti-affinity counts all, because leaving ones still run.
 */
export type TermSide = 'staying' | 'all';

/** A term of interest, and the replicas that the term matches. */
interface CountedTerm {
  readonly term: WorkloadTerm;
  /** Namespace of the workload that declares the term. */
  readonly namespace: string;
  readonly side: TermSide;
  readonly counts: DomainCounts;
}

/** A required anti-affinity term of existing replicas, which keeps others away from them. */
export interface RepelTerm {
  readonly term: WorkloadTerm;
  /** Namespace of the workload that declares the term. */
  readonly namespace: string;
  /** The replicas that declare the term. */
  readonly counts: DomainCounts;
  /** Number of groups that declare the term. */
  groups: number;
}

/** Terms kept at most; beyond them the caller forgets all prepared state. */
const MAX_TERMS = 4_096;

/**
 * Counts of all terms that requests have asked for, and of all terms by which existing replicas
 * keep others away. Terms match groups, so a reservation only adds 1 to the counts of its group.
 */
export class TermIndex {
  private readonly counted = new Map<string, CountedTerm>();
  private readonly countedBuckets = new TermBuckets<CountedTerm>();
  private readonly repelBuckets = new TermBuckets<RepelTerm>();
  private readonly repelled = new Map<string, RepelTerm>();
  /** Grows at the end only, so that readers look at new terms only. */
  readonly repels: RepelTerm[] = [];

  constructor(
    private readonly table: NodeTable,
    private readonly entries: EntryColumns,
    private readonly groups: () => Iterable<LedgerGroup>,
  ) {}

  /** True when more terms are kept than requests sensibly name. */
  get isFull(): boolean {
    return this.counted.size > MAX_TERMS || this.repels.length > MAX_TERMS + 2 * this.repelled.size;
  }

  /** Returns the counts of a term, of the groups that exist now and of all later ones. */
  count(term: WorkloadTerm, namespace: string, side: TermSide): DomainCounts {
    const { selector, topology, namespaces = [] } = term;
    const key = JSON.stringify([
      side,
      topology,
      selector,
      namespaces.length > 0 ? namespaces : namespace,
    ]);
    const known = this.counted.get(key);
    if (known !== undefined) return known.counts;
    const added = { term, namespace, side, counts: this.createCounts(topology) };
    this.counted.set(key, added);
    this.countedBuckets.add(added);
    for (const group of this.groups()) if (this.link(added, group)) this.countEntries(group, added);
    return added.counts;
  }

  /** Lists the terms of existing replicas that may match a workload with these labels. */
  listRepels(labels: LabelMap): readonly RepelTerm[] {
    return this.repelBuckets.listCandidates(labels);
  }

  /** Links a new group with the terms that match the group, and with its own terms. */
  addGroup(group: LedgerGroup): void {
    for (const counted of this.countedBuckets.listCandidates(group.labels))
      this.link(counted, group);
    group.repelCounts = group.repels.map((term) => {
      const key = toRepelKey(term, group);
      const known = this.repelled.get(key);
      if (known !== undefined) {
        known.groups += 1;
        return known.counts;
      }
      const counts = this.createCounts(term.topology);
      const added: RepelTerm = { term, namespace: group.namespace, counts, groups: 1 };
      this.repelled.set(key, added);
      this.repels.push(added);
      this.repelBuckets.add(added);
      return counts;
    });
  }

  /** Forgets the own terms of a group that has no replicas left. */
  removeGroup(group: LedgerGroup): void {
    for (const term of group.repels) {
      const key = toRepelKey(term, group);
      const known = this.repelled.get(key);
      if (known === undefined) continue;
      known.groups -= 1;
      if (known.groups === 0) this.repelled.delete(key);
    }
  }

  /** Links all groups anew, and counts their replicas, after all terms were forgotten. */
  rebuild(): void {
    this.counted.clear();
    this.repelled.clear();
    this.repels.length = 0;
    this.countedBuckets.clear();
    this.repelBuckets.clear();
    for (const group of this.groups()) {
      group.stayingCounts = [];
      group.allCounts = [];
      this.addGroup(group);
      if (group.repels.length === 0) continue;
      for (const entry of this.entries.inGroup(group)) {
        const slot = this.entries.slotOf[entry] ?? 0;
        for (const counts of group.repelCounts) counts.adjust(slot, 1);
      }
    }
  }

  /** Adds the group's replica to all counts that it belongs to (1), or takes it away (-1). */
  adjust(group: LedgerGroup, slot: number, leaving: boolean, change: 1 | -1): void {
    for (const counts of group.allCounts) counts.adjust(slot, change);
    for (const counts of group.repelCounts) counts.adjust(slot, change);
    if (!leaving) for (const counts of group.stayingCounts) counts.adjust(slot, change);
  }

  private link(counted: CountedTerm, group: LedgerGroup): boolean {
    const { term, namespace, side, counts } = counted;
    if (!matchesWorkload(term, namespace, group.namespace, group.labels)) return false;
    if (side === 'all') group.allCounts = [...group.allCounts, counts];
    else group.stayingCounts = [...group.stayingCounts, counts];
    return true;
  }

  private countEntries(group: LedgerGroup, { side, counts }: CountedTerm): void {
    for (const entry of this.entries.inGroup(group))
      if (side === 'all' || this.entries.leaving[entry] === 0)
        counts.adjust(this.entries.slotOf[entry] ?? 0, 1);
  }

  private createCounts(topology: string): DomainCounts {
    return new DomainCounts(this.table.columns.topology(topology), topology === 'node');
  }
}

/** Returns true when the term keeps a workload with these labels away from its holders. */
export function repelsWorkload(
  { term, namespace }: RepelTerm,
  otherNamespace: string,
  labels: LabelMap,
): boolean {
  return matchesWorkload(term, namespace, otherNamespace, labels);
}

function toRepelKey(term: WorkloadTerm, { namespace }: LedgerGroup): string {
  return JSON.stringify([namespace, term]);
}
