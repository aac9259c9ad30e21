import type { Slot } from '../columns/value-column.js';
import type { EligibleNodes } from '../placement/eligible-nodes.js';
import { DIMENSIONS, type Demand } from './demand.js';

/** Nodes that share a bound. */
const BLOCK = 64;

/**
 * Free amounts of each node, by slot, with a bound for each block of consecutive slots: no node
 * of the block has more. A search skips a block whose bound is too small.
 */
export class FreeAmounts {
  /** Free amounts of a node once its leaving replicas have ended; -Infinity without a node. */
  free = new Float64Array(0);
  /** Amounts that the leaving replicas of a node hold. */
  leaving = new Float64Array(0);
  /** By block, then dimension. Raised with every change, lowered only by the next search. */
  private bounds = new Float64Array(0);
  /** 1 for each block with a node that has less than before. */
  private isLoose = new Uint8Array(0);

  /** Makes room for slots. Has no effect when there is room. */
  grow(slots: number): void {
    if (slots * DIMENSIONS <= this.free.length) return;
    const blocks = Math.ceil((slots * 2) / BLOCK);
    this.free = growTo(this.free, blocks * BLOCK * DIMENSIONS, -Infinity);
    this.leaving = growTo(this.leaving, blocks * BLOCK * DIMENSIONS, 0);
    this.bounds = growTo(this.bounds, blocks * DIMENSIONS, -Infinity);
    const isLoose = new Uint8Array(blocks);
    isLoose.set(this.isLoose);
    this.isLoose = isLoose;
  }

  /** Updates the bound after the free amounts of a slot have changed. */
  noteChange(slot: Slot): void {
    const { free, bounds, isLoose } = this;
    const block = Math.floor(slot / BLOCK);
    const [at, atBound] = [slot * DIMENSIONS, block * DIMENSIONS];
    for (let dimension = 0; dimension < DIMENSIONS; dimension += 1)
      if ((free[at + dimension] ?? 0) > (bounds[atBound + dimension] ?? 0))
        bounds[atBound + dimension] = free[at + dimension] ?? 0;
      else isLoose[block] = 1;
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
    for (let block = 0; block < this.isLoose.length; block += 1) {
      if (!holdsAll(this.bounds, block * DIMENSIONS, fixed, amounts)) continue;
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
    const { free, bounds, isLoose } = this;
    if (isLoose[block] === 0) return;
    isLoose[block] = 0;
    const atBound = block * DIMENSIONS;
    bounds.fill(-Infinity, atBound, atBound + DIMENSIONS);
    for (let slot = block * BLOCK; slot < (block + 1) * BLOCK; slot += 1)
      for (let dimension = 0; dimension < DIMENSIONS; dimension += 1) {
        const amount = free[slot * DIMENSIONS + dimension] ?? 0;
        if (amount > (bounds[atBound + dimension] ?? 0)) bounds[atBound + dimension] = amount;
      }
  }
}

/** Returns true when the amounts from an index on are at least those of a demand. */
export function holdsAll(
  held: Float64Array,
  at: number,
  dimensions: readonly number[],
  amounts: ArrayLike<number>,
): boolean {
  for (let each = 0; each < dimensions.length; each += 1) {
    const dimension = dimensions[each] ?? 0;
    if ((held[at + dimension] ?? 0) < (amounts[dimension] ?? 0)) return false;
  }
  return true;
}

function growTo(column: Float64Array, length: number, value: number): Float64Array<ArrayBuffer> {
  const grown = new Float64Array(length).fill(value);
  grown.set(column);
  return grown;
}
