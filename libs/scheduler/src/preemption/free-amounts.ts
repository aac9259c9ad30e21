import type { Slot } from '../columns/value-column.js';
import type { EligibleNodes } from '../placement/eligible-nodes.js';
import { BlockBounds, growTo, holdsAll } from './block-bounds.js';
import { DIMENSIONS, type Demand } from './demand.js';

/** Nodes that share a bound. */
const BLOCK = 64;

/** Free amounts of each node, by slot, with a bound for each block of consecutive slots. */
export class FreeAmounts {
  /** Free amounts of a node once its leaving replicas have ended; -Infinity without a node. */
  free = new Float64Array(0);
  /** Amounts that the leaving replicas of a node hold. */
  leaving = new Float64Array(0);
  private readonly bounds = new BlockBounds();

  /** Makes room for slots. Has no effect when there is room. */
  grow(slots: number): void {
    if (slots * DIMENSIONS <= this.free.length) return;
    const blocks = Math.ceil((slots * 2) / BLOCK);
    this.free = growTo(this.free, blocks * BLOCK * DIMENSIONS, -Infinity);
    this.leaving = growTo(this.leaving, blocks * BLOCK * DIMENSIONS, 0);
    this.bounds.grow(blocks);
  }

  /** Updates the bound after the free amounts of a slot have changed. */
  noteChange(slot: Slot): void {
    const block = Math.floor(slot / BLOCK);
    for (let dimension = 0; dimension < DIMENSIONS; dimension += 1)
      if (!this.bounds.raise(block, dimension, this.get(slot, dimension))) this.bounds.mark(block);
  }

  /**
   * Lists the nodes that have the resources of a request when their leaving replicas have ended,
   * but for custom ones.
   * @param eligible - The nodes to consider.
   * @param mayStop - True to stop at the first node that has the resources now.
   * @returns `now` when the search has stopped there.
   */
  listFitting(eligible: EligibleNodes, demand: Demand, mayStop: boolean): readonly Slot[] | 'now' {
    const { fixed, amounts } = demand;
    const found: Slot[] = [];
    for (let block = 0; block < this.bounds.blocks; block += 1) {
      if (!this.bounds.mayHold(block, demand)) continue;
      let isEmpty = true;
      for (let slot = block * BLOCK; slot < (block + 1) * BLOCK; slot += 1) {
        if (!holdsAll(this.free, slot * DIMENSIONS, fixed, amounts)) continue;
        isEmpty = false;
        if (!eligible.has(slot)) continue;
        if (mayStop && this.fitsNow(slot, demand)) return 'now';
        found.push(slot);
      }
      if (isEmpty) this.tighten(block);
    }
    return found;
  }

  private fitsNow(slot: Slot, { fixed, amounts }: Demand): boolean {
    const { free, leaving } = this;
    for (const dimension of fixed) {
      const at = slot * DIMENSIONS + dimension;
      if ((amounts[dimension] ?? 0) > (free[at] ?? 0) - (leaving[at] ?? 0)) return false;
    }
    return true;
  }

  private tighten(block: number): void {
    if (!this.bounds.clear(block)) return;
    for (let slot = block * BLOCK; slot < (block + 1) * BLOCK; slot += 1)
      for (let dimension = 0; dimension < DIMENSIONS; dimension += 1)
        this.bounds.raise(block, dimension, this.get(slot, dimension));
  }

  private get(slot: Slot, dimension: number): number {
    return this.free[slot * DIMENSIONS + dimension] ?? 0;
  }
}
