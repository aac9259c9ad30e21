import type { Slot } from '../columns/value-column.js';
import { NEVER_FITS } from './need.js';
import type { TieOrder } from './tie-order.js';

/** The nodes of a search, and what orders them. */
export interface OrderedNodes {
  /** Result of `NodeSums.need` by slot. */
  readonly needs: Float64Array;
  readonly ties: TieOrder;
  /** The only slots to consider; undefined for all. */
  readonly only: readonly Slot[] | undefined;
}

/** Returns the nodes that may fit, by their needs, then ties: a heap, of which few are taken. */
export class NodeOrder {
  private readonly slots: Slot[] = [];
  private readonly ties: number[] = [];
  private readonly needs: Float64Array;

  /** @param most - Nodes with a greater need are left out. */
  constructor({ needs, ties, only }: OrderedNodes, most: number) {
    this.needs = needs;
    const length = only?.length ?? needs.length;
    for (let each = 0; each < length; each += 1) {
      const slot = only === undefined ? each : (only[each] ?? 0);
      const need = needs[slot] ?? NEVER_FITS;
      if (need === NEVER_FITS || need > most) continue;
      this.slots.push(slot);
      this.ties.push(ties.of(slot));
    }
    for (let at = (this.slots.length >> 1) - 1; at >= 0; at -= 1) this.siftDown(at);
  }

  /** Takes the first of the nodes that are left. */
  next(): Slot | undefined {
    const { slots, ties } = this;
    const [first] = slots;
    const [lastSlot, lastTie] = [slots.pop(), ties.pop()];
    if (slots.length > 0 && lastSlot !== undefined && lastTie !== undefined) {
      slots[0] = lastSlot;
      ties[0] = lastTie;
      this.siftDown(0);
    }
    return first;
  }

  private siftDown(from: number): void {
    const { slots, ties } = this;
    const [slot, tie] = [slots[from] ?? 0, ties[from] ?? 0];
    let at = from;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= slots.length) break;
      if (child + 1 < slots.length && this.isBefore(child + 1, slots[child] ?? 0, ties[child] ?? 0))
        child += 1;
      if (!this.isBefore(child, slot, tie)) break;
      slots[at] = slots[child] ?? 0;
      ties[at] = ties[child] ?? 0;
      at = child;
    }
    slots[at] = slot;
    ties[at] = tie;
  }

  /** Returns true when the node at a position comes before another node. */
  private isBefore(at: number, slot: Slot, tie: number): boolean {
    const need = this.needs[this.slots[at] ?? 0] ?? NEVER_FITS;
    const other = this.needs[slot] ?? NEVER_FITS;
    return need === other ? (this.ties[at] ?? 0) < tie : need < other;
  }
}
