import { NO_VALUE, type Slot, type ValueColumn } from '../columns/value-column.js';

/** Count of nodes in no domain of a declared spread, which therefore rank last. */
export const NO_DOMAIN_COUNT = 0x7fff_ffff;

/** Replicas of one workload by domain of one topology. */
interface SpreadCounts {
  readonly column: ValueColumn;
  readonly counts: Int32Array;
}

/** Replicas of one workload by node, zone and spread domain, without leaving replicas. */
export class WorkloadCounts {
  /** By slot. */
  readonly onNode: Int32Array;
  /** By ranked zone. */
  readonly inZone: Int32Array;
  private total = 0;
  private readonly spreads = new Map<string, SpreadCounts>();

  constructor(
    capacity: number,
    private readonly zones: ValueColumn,
  ) {
    this.onNode = new Int32Array(capacity);
    this.inZone = new Int32Array(zones.values.length);
  }

  /** Adds a replica on a slot (1) or takes one away (-1). */
  adjust(slot: Slot, change: 1 | -1): void {
    const zone = this.zones.valueOf[slot] ?? NO_VALUE;
    if (zone === NO_VALUE) return; // no node in the slot
    this.total += change;
    this.onNode[slot] = (this.onNode[slot] ?? 0) + change;
    this.inZone[zone] = (this.inZone[zone] ?? 0) + change;
    for (const { column, counts } of this.spreads.values()) {
      const domain = column.valueOf[slot] ?? NO_VALUE;
      if (domain !== NO_VALUE) counts[domain] = (counts[domain] ?? 0) + change;
    }
  }

  /** True when no node has a replica. */
  get isEmpty(): boolean {
    return this.total === 0;
  }

  /** Lists the slots with replicas. */
  listOccupiedSlots(): Slot[] {
    const listed: Slot[] = [];
    const { onNode } = this;
    for (let slot = 0; slot < onNode.length; slot += 1) if (onNode[slot] !== 0) listed.push(slot);
    return listed;
  }

  /** Returns the counts by domain of a topology; {@link NO_DOMAIN_COUNT} for nodes in none. */
  inDomains(topology: string, column: ValueColumn): Int32Array {
    const known = this.spreads.get(topology);
    if (known !== undefined) return known.counts;
    const counts = new Int32Array(column.values.length);
    this.onNode.forEach((replicas, slot) => {
      const domain = column.valueOf[slot] ?? NO_VALUE;
      counts[domain] = (counts[domain] ?? 0) + replicas;
    });
    counts[NO_VALUE] = NO_DOMAIN_COUNT;
    this.spreads.set(topology, { column, counts });
    return counts;
  }

  /** Bytes of the arrays. */
  get bytes(): number {
    const spreads = [...this.spreads.values()].reduce((sum, s) => sum + s.counts.byteLength, 0);
    return this.onNode.byteLength + this.inZone.byteLength + spreads;
  }
}
