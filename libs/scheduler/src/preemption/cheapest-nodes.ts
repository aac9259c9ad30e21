import type { Slot } from '../columns/value-column.js';
import type { EligibleNodes } from '../placement/eligible-nodes.js';
import type { Demand } from './demand.js';
import { NEVER_FITS, toNeed, toVictimBound } from './need.js';
import type { NodeSums } from './node-sums.js';
import type { TieOrder } from './tie-order.js';

/** Input of one search for the cheapest nodes. */
export interface CheapestProblem {
  readonly demand: Demand;
  /** The nodes to consider. None of them has the resources without an eviction. */
  readonly eligible: EligibleNodes;
  /** Only reservations of lower priority may be evicted. */
  readonly priority: number;
}

/** Finds the nodes on which evictions of the lowest possible priority make room for a request. */
export class CheapestNodes {
  /** Need of each node in the round of {@link roundOf}, by slot. */
  needs = new Float64Array(0);
  private roundOf = new Uint32Array(0);
  private round = 0;

  constructor(private readonly sums: NodeSums) {}

  /** Begins a decision, before {@link needOf}, {@link findFirst} and {@link list}. */
  start(): void {
    this.round += 1;
    const { size } = this.sums;
    if (size <= this.roundOf.length) return;
    this.roundOf = new Uint32Array(size * 2);
    this.needs = new Float64Array(size * 2);
  }

  /** Returns what a request needs of a node, as `NodeSums.need` does, and keeps the result. */
  needOf(slot: Slot, { demand, priority }: Omit<CheapestProblem, 'eligible'>): number {
    if (this.roundOf[slot] === this.round) return this.needs[slot] ?? NEVER_FITS;
    const need = this.sums.need(slot, demand, priority);
    this.needs[slot] = need;
    this.roundOf[slot] = this.round;
    return need;
  }

  /**
   * Returns the first node by need and then by ties; undefined when no eviction makes room on any
   * node.
   */
  findFirst(problem: CheapestProblem, ties: TieOrder): Slot | undefined {
    const { eligible, priority, demand } = problem;
    const { index } = this.sums;
    for (const members of index.priorities) {
      if (members.priority >= priority) return undefined;
      if (!members.mayHold(demand)) continue;
      const leastNeed = toNeed({ priority: members.priority, victims: 1 });
      const end = toNeed({ priority: members.priority + 1, victims: 0 });
      let [first, firstNeed, firstTie] = [-1, end, Infinity];
      members.forEachWith(demand, (slot) => {
        // No need is smaller, so that only the ties decide.
        if (firstNeed === leastNeed && ties.of(slot) >= firstTie) return true;
        if (!eligible.has(slot)) return true;
        const need = this.needOf(slot, problem);
        if (need >= end) return false;
        const tie = ties.of(slot);
        if (need > firstNeed || (need === firstNeed && tie >= firstTie)) return true;
        first = slot;
        firstNeed = need;
        firstTie = tie;
        return true;
      });
      if (first >= 0) return first;
    }
    return undefined;
  }

  /** Lists the nodes on which the same highest priority has to leave as on `first`. */
  listLike(first: Slot, problem: CheapestProblem): readonly Slot[] {
    const { priority } = toVictimBound(this.needOf(first, problem));
    const end = toNeed({ priority: priority + 1, victims: 0 });
    const found: Slot[] = [];
    this.sums.index.priorities
      .find((members) => members.priority === priority)
      ?.forEachWith(problem.demand, (slot) => {
        if (!problem.eligible.has(slot)) return true;
        const isAlike = this.needOf(slot, problem) < end;
        if (isAlike) found.push(slot);
        return isAlike;
      });
    return found;
  }
}
