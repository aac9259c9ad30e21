import { DIMENSIONS, type Demand } from './demand.js';

/**
 * Upper bounds of the amounts that nodes have: one for each block of consecutive slots and each
 * dimension. A search skips a block whose bound is too small. A larger amount raises the bound at
 * once. A smaller amount only marks the block: the search that finds no node in the block computes
 * the bound again.
 */
export class BlockBounds {
  /** By block, then dimension; -Infinity in a block without a node. */
  private bounds = new Float64Array(0);
  /** 1 for each block in which a node may have less than before. */
  private marks = new Uint8Array(0);

  /** Number of blocks. */
  get blocks(): number {
    return this.marks.length;
  }

  /** Makes room for more blocks. */
  grow(blocks: number): void {
    this.bounds = growTo(this.bounds, blocks * DIMENSIONS, -Infinity);
    const marks = new Uint8Array(blocks);
    marks.set(this.marks);
    this.marks = marks;
  }

  /** Returns false when no node of a block has enough for a demand. */
  mayHold(block: number, { fixed, amounts }: Demand): boolean {
    return holdsAll(this.bounds, block * DIMENSIONS, fixed, amounts);
  }

  get(block: number, dimension: number): number {
    return this.bounds[block * DIMENSIONS + dimension] ?? 0;
  }

  /** Raises a bound to an amount. Returns false when the bound is at least the amount. */
  raise(block: number, dimension: number, amount: number): boolean {
    const at = block * DIMENSIONS + dimension;
    if (amount <= (this.bounds[at] ?? 0)) return false;
    this.bounds[at] = amount;
    return true;
  }

  /** Notes that a node of a block has less than before, or has left. */
  mark(block: number): void {
    this.marks[block] = 1;
  }

  /**
   * Removes the bound of a marked block, and the mark. The caller then calls {@link raise} for all
   * nodes of the block.
   * @returns False, without effect, when the block is not marked.
   */
  clear(block: number): boolean {
    if (this.marks[block] !== 1) return false;
    this.marks[block] = 0;
    this.bounds.fill(-Infinity, block * DIMENSIONS, (block + 1) * DIMENSIONS);
    return true;
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

/** Returns a longer copy of a column, whose new elements have a value. */
export function growTo(
  column: Float64Array,
  length: number,
  value: number,
): Float64Array<ArrayBuffer> {
  const grown = new Float64Array(length).fill(value);
  grown.set(column);
  return grown;
}
