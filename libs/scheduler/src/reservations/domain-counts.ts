import { ChangeLog } from '../columns/change-log.js';
import { NO_VALUE, type Slot, type ValueColumn } from '../columns/value-column.js';

/** Most changes of occupied domains that are remembered for those who read them later. */
const MAX_CHANGES = 4_096;

/**
 * Number of replicas that one workload term matches, by domain of the term's topology. Kept up to
 * date by every reservation and release, so that a decision reads and never counts.
 */
export class DomainCounts {
  /** Replicas by domain id; contains no entry for domains without a replica. */
  private readonly counts = new Map<number, number>();
  /** Domains that got their first replica or lost their last, oldest first. */
  readonly changes = new ChangeLog(MAX_CHANGES);

  constructor(
    /** Domains of the nodes. */
    readonly column: ValueColumn,
    /** True for topology `node`, where only the node itself is in the domain of a placement. */
    readonly isPerNode: boolean,
  ) {}

  /** Number of domains with a replica. */
  get occupied(): number {
    return this.counts.size;
  }

  /** Returns true when the domain of the slot has a replica. False for a node in no domain. */
  hasReplica(slot: Slot): boolean {
    return this.counts.has(this.column.valueOf[slot] ?? NO_VALUE);
  }

  /** Adds replicas on a slot, or takes some away. */
  adjust(slot: Slot, change: number): void {
    const domain = this.column.valueOf[slot] ?? NO_VALUE;
    if (domain === NO_VALUE) return;
    const before = this.counts.get(domain) ?? 0;
    const after = before + change;
    if (after > 0) this.counts.set(domain, after);
    else this.counts.delete(domain);
    if (before > 0 !== after > 0) this.changes.push(domain);
  }

  /** Lists the occupied domains. */
  occupiedDomains(): Iterable<number> {
    return this.counts.keys();
  }
}
