import { BALANCE_DISTANCE, HIGH_USE_DISTANCE } from '../scoring/score.js';
import type { Slot } from './value-column.js';

/** Cells in each of the two directions: one bit of a number for each cell of a row. */
const CELLS = 32;
/** Rows of cells, by the share of CPU in use. */
export const USE_ROWS = CELLS;
const NONE = -1;
/** Sizes of machines above which an index would mostly consist of empty cells. */
export const MAX_INDEXED_SIZES = 64;
/** Different shares of nodes without replicas. Beyond the limit, such nodes are in cells. */
const MAX_IDLE_SHARES = 64;

/** Which nodes of a size a search wants, by their shares of CPU and memory in use. */
export interface UseSearch {
  /** The best shares. May lie outside of 0 to 1. */
  readonly cpu: number;
  readonly memory: number;
  /**
   * Largest sum of the distances of CPU and memory. Infinity: all nodes. Nodes whose shares come
   * closer together may be further away by {@link BALANCE_DISTANCE}; nodes that are highly used
   * must be nearer by {@link HIGH_USE_DISTANCE}.
   */
  readonly distance: number;
  /** Change of the share of CPU minus change of the share of memory. */
  readonly skew: number;
  /** Shares above which a node is highly used after the change. */
  readonly highCpu: number;
  readonly highMemory: number;
}

/** Nodes of one size without replicas, of which equal shares are in use. */
interface IdleNodes {
  readonly size: number;
  readonly cpu: number;
  readonly memory: number;
  first: Slot;
}

/**
 * Finds nodes by the shares of CPU and memory that are in use. Each size of machine has a grid of
 * cells, and each cell a list of the slots whose shares lie in it. A node on which more than
 * everything is used, because it has shrunk, is in the last cells.
 *
 * Nodes without replicas, often most of the cluster, have lists of their own, of which the shares
 * are known exactly: a search takes or skips a whole list.
 */
export class UseIndex {
  /** First slot of each cell, by size. */
  private readonly heads: Int32Array[] = [];
  /** Bits of the cells of each row that have a slot, by size. */
  private readonly occupied: Int32Array[] = [];
  private readonly idle: IdleNodes[] = [];
  private next: Int32Array;
  private previous: Int32Array;
  /**
   * List of each slot: the number of its cell among all sizes, {@link NONE} for an unlisted slot,
   * or a number below {@link NONE} for a list of idle nodes.
   */
  private listOf: Int32Array;

  /** @param capacity - Number of slots. */
  constructor(capacity: number) {
    this.next = new Int32Array(capacity).fill(NONE);
    this.previous = new Int32Array(capacity).fill(NONE);
    this.listOf = new Int32Array(capacity).fill(NONE);
  }

  /** Bytes of the arrays. */
  get bytes(): number {
    return 4 * (3 * this.listOf.length + (CELLS + 1) * CELLS * this.heads.length);
  }

  /** Makes room for more slots. */
  grow(capacity: number): void {
    [this.next, this.previous, this.listOf] = [this.next, this.previous, this.listOf].map(
      (column) => {
        const grown = new Int32Array(capacity).fill(NONE);
        grown.set(column);
        return grown;
      },
    ) as [Int32Array, Int32Array, Int32Array];
  }

  /**
   * Lists a slot at the shares of its node, or moves it there.
   * @param isIdle - True for a node without replicas.
   */
  set(slot: Slot, size: number, cpu: number, memory: number, isIdle: boolean): void {
    const idle = isIdle ? this.findIdle(size, cpu, memory) : NONE;
    const cell = (size * CELLS + toCell(cpu)) * CELLS + toCell(memory);
    const list = idle === NONE ? cell : NONE - 1 - idle;
    if (this.listOf[slot] === list) return;
    this.remove(slot);
    while (this.heads.length <= size) {
      this.heads.push(new Int32Array(CELLS * CELLS).fill(NONE));
      this.occupied.push(new Int32Array(CELLS));
    }
    const first = this.firstOf(list);
    this.next[slot] = first;
    this.previous[slot] = NONE;
    if (first !== NONE) this.previous[first] = slot;
    this.setFirst(list, slot);
    this.listOf[slot] = list;
  }

  /** Removes a slot. Has no effect when the slot is not listed. */
  remove(slot: Slot): void {
    const list = this.listOf[slot] ?? NONE;
    if (list === NONE) return;
    const [next, previous] = [this.next[slot] ?? NONE, this.previous[slot] ?? NONE];
    if (next !== NONE) this.previous[next] = previous;
    if (previous !== NONE) this.next[previous] = next;
    else this.setFirst(list, next);
    this.listOf[slot] = NONE;
  }

  /** Returns the row with a share of CPU. */
  rowOf(cpu: number): number {
    return toCell(cpu);
  }

  /**
   * Collects nodes of a size from one row of cells: all that the search wants, and those that share
   * a cell with them. Nodes without replicas: see {@link collectIdle}.
   * @param row - From 0 to {@link USE_ROWS} - 1, by the share of CPU.
   * @param allowed - 1 for each slot that may be collected.
   * @param found - Receives the slots; has room for all.
   * @returns The number of slots in `found`.
   */
  collectRow(
    size: number,
    row: number,
    search: UseSearch,
    allowed: Uint8Array,
    found: Int32Array,
  ): number {
    const heads = this.heads[size];
    const occupied = this.occupied[size]?.[row] ?? 0;
    if (heads === undefined || occupied === 0) return 0;
    let cells = occupied & findCells(row, search);
    const { next } = this;
    let count = 0;
    while (cells !== 0) {
      const lowest = cells & -cells;
      cells ^= lowest;
      const cell = row * CELLS + (CELLS - 1 - Math.clz32(lowest));
      for (let slot = heads[cell] ?? NONE; slot !== NONE; slot = next[slot] ?? NONE)
        if (allowed[slot] === 1) {
          found[count] = slot;
          count += 1;
        }
    }
    return count;
  }

  /** Collects the nodes of a size without replicas that the search wants, as {@link collectRow}. */
  collectIdle(size: number, search: UseSearch, allowed: Uint8Array, found: Int32Array): number {
    const { next } = this;
    let count = 0;
    for (const nodes of this.idle) {
      if (nodes.size !== size || !isWanted(nodes, search)) continue;
      for (let slot = nodes.first; slot !== NONE; slot = next[slot] ?? NONE)
        if (allowed[slot] === 1) {
          found[count] = slot;
          count += 1;
        }
    }
    return count;
  }

  /** Returns the index of the list of idle nodes with exactly these shares; or {@link NONE}. */
  private findIdle(size: number, cpu: number, memory: number): number {
    const { idle } = this;
    for (let index = 0; index < idle.length; index += 1) {
      const nodes = idle[index];
      if (nodes?.size === size && nodes.cpu === cpu && nodes.memory === memory) return index;
    }
    if (idle.length >= MAX_IDLE_SHARES) return NONE;
    return idle.push({ size, cpu, memory, first: NONE }) - 1;
  }

  private firstOf(list: number): Slot {
    if (list < NONE) return this.idle[NONE - 1 - list]?.first ?? NONE;
    const size = Math.floor(list / (CELLS * CELLS));
    return this.heads[size]?.[list - size * CELLS * CELLS] ?? NONE;
  }

  private setFirst(list: number, first: Slot): void {
    const idle = list < NONE ? this.idle[NONE - 1 - list] : undefined;
    if (idle !== undefined) {
      idle.first = first;
      return;
    }
    const size = Math.floor(list / (CELLS * CELLS));
    const inSize = list - size * CELLS * CELLS;
    const heads = this.heads[size] as Int32Array;
    const occupied = this.occupied[size] as Int32Array;
    heads[inSize] = first;
    const row = Math.floor(inSize / CELLS);
    const bit = 1 << (inSize - row * CELLS);
    occupied[row] = first === NONE ? (occupied[row] ?? 0) & ~bit : (occupied[row] ?? 0) | bit;
  }
}

/** Returns the bits of the cells of a row that may have nodes which the search wants. */
function findCells(row: number, search: UseSearch): number {
  const { memory, skew } = search;
  const isHighRow = row / CELLS > search.highCpu;
  const away = distanceToCell(search.cpu, row) + (isHighRow ? HIGH_USE_DISTANCE : 0);
  const narrow = search.distance - away;
  const wide = narrow + BALANCE_DISTANCE;
  if (!(wide >= 0)) return 0;
  let first = CELLS;
  let last = NONE;
  if (skew !== 0) {
    // The shares come closer only where CPU is below memory by more than half of the skew, or above
    // for a negative skew. The last row ends at 1: use beyond the capacity balances nothing.
    first = toCell(memory - wide);
    last = toLastCell(memory + wide);
    if (skew > 0) first = Math.max(first, toCell(row / CELLS + skew / 2));
    else last = Math.min(last, toLastCell((row + 1) / CELLS + skew / 2));
  }
  if (narrow >= 0) {
    const isEmpty = first > last;
    first = isEmpty ? toCell(memory - narrow) : Math.min(first, toCell(memory - narrow));
    last = isEmpty ? toLastCell(memory + narrow) : Math.max(last, toLastCell(memory + narrow));
  }
  if (!isHighRow) {
    const lastHigh = toLastCell(memory + wide - HIGH_USE_DISTANCE);
    last = Math.min(last, Math.max(toLastCell(search.highMemory), lastHigh));
  }
  return first > last ? 0 : (-1 << first) & (-1 >>> (CELLS - 1 - last));
}

/** Returns true when the search wants nodes with these shares. */
function isWanted({ cpu, memory }: IdleNodes, search: UseSearch): boolean {
  const isHigh = cpu > search.highCpu || memory > search.highMemory;
  const distance =
    Math.abs(cpu - search.cpu) +
    Math.abs(memory - search.memory) +
    (isHigh ? HIGH_USE_DISTANCE : 0);
  if (distance <= search.distance) return true;
  if (distance > search.distance + BALANCE_DISTANCE) return false;
  const difference = cpu - memory + search.skew / 2;
  return search.skew > 0 ? difference < 0 : search.skew < 0 && difference > 0;
}

/** Returns the cell of a share in one direction; the last one for shares of 1 and more. */
function toCell(share: number): number {
  return Math.max(0, Math.min(CELLS - 1, Math.floor(share * CELLS)));
}

/** Returns the last cell that begins at or before a share; less than 0 when none does. */
function toLastCell(share: number): number {
  return Math.min(CELLS - 1, Math.floor(share * CELLS));
}

/** Returns the distance from a share to the nearest share of a cell. */
function distanceToCell(share: number, cell: number): number {
  if (share < cell / CELLS) return cell / CELLS - share;
  // The last cell has no end.
  return cell === CELLS - 1 ? 0 : Math.max(0, share - (cell + 1) / CELLS);
}
