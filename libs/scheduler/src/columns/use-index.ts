import type { Slot } from './value-column.js';

/** Cells in each of the two directions. */
const CELLS = 32;
const NONE = -1;
/** Sizes of machines above which an index would mostly consist of empty cells. */
export const MAX_INDEXED_SIZES = 64;

/** Used shares of CPU and memory, from 0 to 1. */
export interface UsedShares {
  readonly cpu: number;
  readonly memory: number;
}

/**
 * Finds nodes by the shares of CPU and memory that are in use. Each size of machine has a grid of
 * cells, and each cell a list of the slots whose shares lie in it. A node on which more than
 * everything is used, because it has shrunk, is in the last cells.
 */
export class UseIndex {
  /** First slot of each cell, by size. */
  private readonly heads: Int32Array[] = [];
  private next: Int32Array;
  private previous: Int32Array;
  /** Cell of each slot among those of all sizes; {@link NONE} for a slot that is not listed. */
  private cellOf: Int32Array;

  /** @param capacity - Number of slots. */
  constructor(capacity: number) {
    this.next = new Int32Array(capacity).fill(NONE);
    this.previous = new Int32Array(capacity).fill(NONE);
    this.cellOf = new Int32Array(capacity).fill(NONE);
  }

  /** Bytes of the arrays. */
  get bytes(): number {
    return 4 * (3 * this.cellOf.length + CELLS * CELLS * this.heads.length);
  }

  /** Makes room for more slots. */
  grow(capacity: number): void {
    [this.next, this.previous, this.cellOf] = [this.next, this.previous, this.cellOf].map(
      (column) => {
        const grown = new Int32Array(capacity).fill(NONE);
        grown.set(column);
        return grown;
      },
    ) as [Int32Array, Int32Array, Int32Array];
  }

  /** Lists a slot at the shares of its node, or moves it there. */
  set(slot: Slot, size: number, cpu: number, memory: number): void {
    const cell = (size * CELLS + toCell(cpu)) * CELLS + toCell(memory);
    if (this.cellOf[slot] === cell) return;
    this.remove(slot);
    while (this.heads.length <= size) this.heads.push(new Int32Array(CELLS * CELLS).fill(NONE));
    const heads = this.heads[size] as Int32Array;
    const inSize = cell - size * CELLS * CELLS;
    const first = heads[inSize] ?? NONE;
    this.next[slot] = first;
    this.previous[slot] = NONE;
    if (first !== NONE) this.previous[first] = slot;
    heads[inSize] = slot;
    this.cellOf[slot] = cell;
  }

  /** Removes a slot. Has no effect for a slot that is not listed. */
  remove(slot: Slot): void {
    const cell = this.cellOf[slot] ?? NONE;
    if (cell === NONE) return;
    const [next, previous] = [this.next[slot] ?? NONE, this.previous[slot] ?? NONE];
    if (next !== NONE) this.previous[next] = previous;
    if (previous !== NONE) this.next[previous] = next;
    else {
      const size = Math.floor(cell / (CELLS * CELLS));
      (this.heads[size] as Int32Array)[cell - size * CELLS * CELLS] = next;
    }
    this.cellOf[slot] = NONE;
  }

  /**
   * Collects the nodes of a size whose shares are near a point: all within the distance, and those
   * that share a cell with them.
   * @param center - May lie outside of 0 to 1.
   * @param distance - Largest sum of the distances of CPU and memory. Infinity: all nodes.
   * @param allowed - 1 for each slot that may be collected.
   * @param found - Receives the slots; has room for all.
   * @returns The number of slots in `found`.
   */
  collect(
    size: number,
    center: UsedShares,
    distance: number,
    allowed: Uint8Array,
    found: Int32Array,
  ): number {
    const heads = this.heads[size];
    if (heads === undefined) return 0;
    const { next } = this;
    let count = 0;
    for (let row = 0; row < CELLS; row += 1) {
      const left = distance - distanceToCell(center.cpu, row);
      if (!(left >= 0)) continue;
      const first = toCell(center.memory - left);
      const last = Math.min(CELLS - 1, Math.floor((center.memory + left) * CELLS));
      for (let cell = row * CELLS + first; cell <= row * CELLS + last; cell += 1)
        for (let slot = heads[cell] ?? NONE; slot !== NONE; slot = next[slot] ?? NONE)
          if (allowed[slot] === 1) {
            found[count] = slot;
            count += 1;
          }
    }
    return count;
  }
}

/** Returns the cell of a share in one direction; the last one for shares of 1 and more. */
function toCell(share: number): number {
  return Math.max(0, Math.min(CELLS - 1, Math.floor(share * CELLS)));
}

/** Returns the distance from a share to the nearest share of a cell. */
function distanceToCell(share: number, cell: number): number {
  if (share < cell / CELLS) return cell / CELLS - share;
  // The last cell has no end.
  return cell === CELLS - 1 ? 0 : Math.max(0, share - (cell + 1) / CELLS);
}
