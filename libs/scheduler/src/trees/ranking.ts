import type { NodeTable } from '../columns/node-table.js';
import { NO_VALUE, type Slot } from '../columns/value-column.js';
import type { FullRequest } from '../input/request.js';
import type { WorkloadCounts } from '../reservations/workload-counts.js';
import { EXCLUDED } from '../signatures/class-scores.js';

/** Without a declared spread all nodes are in one domain, whose count is 0. */
const ONE_DOMAIN = new Int32Array(1);

/**
 * The order of nodes for one workload: fewest replicas in the domain of the declared spread, then
 * in the zone, then on the node, then the highest score, then the node id.
 */
export class Ranking {
  private readonly spreadDomainOf: Int32Array | undefined;
  private readonly spreadCounts: Int32Array;
  private readonly zoneOf: Int32Array;
  private readonly zoneCounts: Int32Array;
  private readonly onNode: Int32Array;
  private readonly rankOf: Int32Array;

  /** True when the counts of all nodes are equal: the workload has no replicas and no spread. */
  readonly isFlat: boolean;

  constructor(table: NodeTable, counts: WorkloadCounts, { spread }: Pick<FullRequest, 'spread'>) {
    this.isFlat = spread === undefined && counts.isEmpty;
    const column = spread && table.columns.topology(spread.topology);
    this.spreadDomainOf = column?.valueOf;
    this.spreadCounts =
      spread === undefined || column === undefined
        ? ONE_DOMAIN
        : counts.inDomains(spread.topology, column);
    this.zoneOf = table.columns.rankedZones.valueOf;
    this.zoneCounts = counts.inZone;
    this.onNode = counts.onNode;
    this.rankOf = table.rankOf;
  }

  /** Replicas of the workload in the slot's domain of the declared spread. */
  spreadCount(slot: Slot): number {
    return this.spreadCounts[this.domainOf(slot)] ?? 0;
  }

  /** Replicas of the workload in a domain of the declared spread. */
  countIn(domain: number): number {
    return this.spreadCounts[domain] ?? 0;
  }

  /** Domain of the declared spread. */
  domainOf(slot: Slot): number {
    return this.spreadDomainOf === undefined ? NO_VALUE : (this.spreadDomainOf[slot] ?? NO_VALUE);
  }

  /** Zones and their counts, when they are the first criterion that differs; or undefined. */
  get leadingZones(): { readonly of: Int32Array; readonly counts: Int32Array } | undefined {
    return this.spreadDomainOf === undefined && !this.isFlat
      ? { of: this.zoneOf, counts: this.zoneCounts }
      : undefined;
  }

  /** Compares the ids of two nodes, the last criterion of the ranking. */
  hasSmallerId(a: Slot, b: Slot): boolean {
    return (this.rankOf[a] ?? 0) < (this.rankOf[b] ?? 0);
  }

  /** Compares the replica counts of two slots: negative when `a` ranks before `b`, 0 when equal. */
  compareCounts(a: Slot, b: Slot): number {
    if (this.spreadDomainOf !== undefined) {
      const difference = this.spreadCount(a) - this.spreadCount(b);
      if (difference !== 0) return difference;
    }
    const zones =
      (this.zoneCounts[this.zoneOf[a] ?? 0] ?? 0) - (this.zoneCounts[this.zoneOf[b] ?? 0] ?? 0);
    return zones !== 0 ? zones : (this.onNode[a] ?? 0) - (this.onNode[b] ?? 0);
  }

  /** Returns true when slot `a` with score `scoreA` ranks before slot `b`. Equal slots: false. */
  isBefore(a: Slot, scoreA: number, b: Slot, scoreB: number): boolean {
    if (scoreA === EXCLUDED) return false;
    if (scoreB === EXCLUDED) return true;
    const difference = this.compareCounts(a, b);
    if (difference !== 0) return difference < 0;
    if (scoreA !== scoreB) return scoreA > scoreB;
    return this.hasSmallerId(a, b);
  }

  /** {@link isBefore} for slots of one spread domain and one zone. */
  isBeforeInPart(a: Slot, scoreA: number, b: Slot, scoreB: number): boolean {
    if (scoreA === EXCLUDED) return false;
    if (scoreB === EXCLUDED) return true;
    const difference = (this.onNode[a] ?? 0) - (this.onNode[b] ?? 0);
    if (difference !== 0) return difference < 0;
    if (scoreA !== scoreB) return scoreA > scoreB;
    return this.hasSmallerId(a, b);
  }
}
