import { fitsWhenEmpty } from '../filters/capacity-filters.js';
import type { NodeTable } from '../columns/node-table.js';
import { NO_VALUE, type Slot } from '../columns/value-column.js';
import type { RequestPlan } from '../signatures/request-plan.js';
import type { Ranking } from './ranking.js';

/**
 * The count at which a domain of a required spread is full: the count of the emptiest eligible
 * domain plus `maxSkew`. A domain is eligible while one of its nodes could hold a replica if it
 * were empty.
 */
export class SpreadCeiling {
  /** Number of eligible nodes by domain. */
  private readonly eligibleNodes = new Map<number, number>();
  /** 1 for each slot whose node makes its domain eligible. */
  private eligible: Uint8Array;
  private emptiest = Infinity;
  /** Eligible domains whose count is `emptiest`. */
  private emptiestDomains = 0;

  constructor(
    private readonly table: NodeTable,
    private readonly plan: RequestPlan,
    private readonly ranking: Ranking,
    private readonly maxSkew: number,
  ) {
    this.eligible = new Uint8Array(table.capacity);
  }

  /** Takes over which nodes make their domains eligible. */
  copyFrom(other: SpreadCeiling): void {
    // The other ceiling may be newer, of a table with more slots.
    this.eligible = other.eligible.slice();
    this.eligibleNodes.clear();
    for (const [domain, nodes] of other.eligibleNodes) this.eligibleNodes.set(domain, nodes);
  }

  /** Looks at all nodes. */
  refreshAll(): void {
    const { slots, count } = this.plan.match;
    for (let index = 0; index < count; index += 1) this.refreshNode(slots[index] ?? 0);
  }

  /**
   * Looks again whether the node of a slot makes its domain eligible.
   * @param fitsNow - True when one more replica is known to fit on the node as it is.
   */
  refreshNode(slot: Slot, fitsNow = false): void {
    const node = this.table.records[slot];
    const now =
      node !== undefined &&
      this.plan.match.allowed[slot] === 1 &&
      (fitsNow || fitsWhenEmpty(node, this.plan.request));
    if (now === (this.eligible[slot] === 1)) return;
    this.eligible[slot] = Number(now);
    const domain = this.ranking.domainOf(slot);
    if (domain === NO_VALUE) return;
    const nodes = (this.eligibleNodes.get(domain) ?? 0) + (now ? 1 : -1);
    if (nodes > 0) this.eligibleNodes.set(domain, nodes);
    else this.eligibleNodes.delete(domain);
  }

  /** Finds the emptiest domain anew, at the start of a call. */
  recount(): void {
    this.emptiest = Infinity;
    this.emptiestDomains = 0;
    for (const domain of this.eligibleNodes.keys()) {
      const count = this.ranking.countIn(domain);
      if (count > this.emptiest) continue;
      if (count < this.emptiest) this.emptiestDomains = 0;
      this.emptiest = count;
      this.emptiestDomains += 1;
    }
  }

  /** Notes that the domain of the slot has got one more replica. */
  addPlacement(slot: Slot): void {
    const domain = this.ranking.domainOf(slot);
    if (!this.eligibleNodes.has(domain)) return;
    if (this.ranking.countIn(domain) - 1 !== this.emptiest) return;
    this.emptiestDomains -= 1;
    if (this.emptiestDomains === 0) this.recount();
  }

  /** Returns true when the slot's domain is full, or the node is in no domain. */
  excludes(slot: Slot): boolean {
    const domain = this.ranking.domainOf(slot);
    return domain === NO_VALUE || this.ranking.countIn(domain) >= this.emptiest + this.maxSkew;
  }
}

/** Creates the ceiling of a request over all nodes, for one decision. */
export function countCeiling(
  table: NodeTable,
  plan: RequestPlan,
  ranking: Ranking,
  maxSkew: number,
): SpreadCeiling {
  const ceiling = new SpreadCeiling(table, plan, ranking, maxSkew);
  ceiling.refreshAll();
  ceiling.recount();
  return ceiling;
}
