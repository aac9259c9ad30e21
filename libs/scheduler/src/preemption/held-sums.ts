import type { Slot } from '../columns/value-column.js';
import type { Claim } from '../reservations/claim.js';
import { DIMENSIONS, REPLICA_DIMENSION } from './demand.js';
import { NEVER_FITS, toNeed } from './need.js';
import { RowStore } from './row-store.js';

/** Largest amounts kept for each priority and dimension. A bound counts at most one victim more. */
const LARGEST = 3;

/** Numbers of one priority of a node: the priority, and a sum of each dimension. */
const WIDTH = 1 + DIMENSIONS;

/** Numbers of the largest amounts of one priority of a node. */
const LARGEST_WIDTH = DIMENSIONS * LARGEST;

/**
 * Amounts that the replicas of each node hold, without leaving ones, by priority. A row has an
 * entry for each of its priorities, from the lowest to the highest: the priority, and what this
 * priority and all lower ones hold of each dimension. The largest amounts of each priority lie
 * apart, so that a search over the sums of many nodes reads less memory.
 */
export class HeldSums {
  private readonly rows = new RowStore(WIDTH);
  private readonly largest = new RowStore(LARGEST_WIDTH);
  /** The rows of the node that is being summed. */
  private next = new Float64Array(WIDTH);
  private nextLargest = new Float64Array(LARGEST_WIDTH);
  private nextLength = 0;

  /** Number of different priorities on a node. */
  lengthOf(slot: Slot): number {
    return this.rows.lengthOf(slot);
  }

  /** Returns a priority of a node. */
  priorityAt(slot: Slot, entry: number): number {
    return this.rows.numbers[this.rows.find(slot) + entry * WIDTH] ?? 0;
  }

  /** Returns what a priority of a node and all lower ones hold of a dimension. */
  heldAt(slot: Slot, entry: number, dimension: number): number {
    return this.rows.numbers[this.rows.find(slot) + entry * WIDTH + 1 + dimension] ?? 0;
  }

  /** Returns the entry of a priority in the row of a node that has the priority. */
  findEntry(slot: Slot, priority: number): number {
    let entry = 0;
    while (this.priorityAt(slot, entry) !== priority) entry += 1;
    return entry;
  }

  /** Begins the sums of a node. */
  start(): void {
    this.nextLength = 0;
  }

  /** Adds a replica to the sums that {@link start} has begun. */
  add({ priority, resources }: Claim): void {
    const entry = this.entryFor(priority);
    this.addAmount(entry, 0, resources.cpuMillis);
    this.addAmount(entry, 1, resources.memoryBytes);
    this.addAmount(entry, 2, resources.storageBytes);
    this.addAmount(entry, 3, resources.bandwidthBps);
    this.addAmount(entry, 4, resources.gpus);
    this.addAmount(entry, REPLICA_DIMENSION, 1);
  }

  /** Stores the sums that {@link start} has begun as those of a node. */
  store(slot: Slot): void {
    const { next, nextLength } = this;
    for (let entry = 1; entry < nextLength; entry += 1) {
      const at = entry * WIDTH;
      for (let each = at + 1; each < at + WIDTH; each += 1)
        next[each] = (next[each] ?? 0) + (next[each - WIDTH] ?? 0);
    }
    this.rows.set(slot, next, nextLength);
    this.largest.set(slot, this.nextLargest, nextLength);
  }

  /**
   * Returns what makes up for shortages on a node: {@link NEVER_FITS}, or a bound of the evictions.
   * @param dimensions - The dimensions that may be short.
   * @param shortages - In the order of `dimensions`; one of them is above 0.
   * @param priority - Only reservations of lower priority may be evicted.
   */
  findNeed(
    slot: Slot,
    dimensions: readonly number[],
    shortages: Float64Array,
    priority: number,
  ): number {
    const { numbers } = this.rows;
    const first = this.rows.find(slot);
    const entry = this.findLowest(slot, dimensions, shortages, priority);
    if (entry === undefined) return NEVER_FITS;
    const victims = this.countAtLeast(slot, entry, dimensions, shortages);
    return toNeed({ priority: numbers[first + entry * WIDTH] ?? 0, victims });
  }

  /**
   * Returns a lower bound of the priorities of a victim set of a node, from the highest to the
   * lowest, in the order of `compareVictimPriorities`. Tighter than {@link findNeed}, and slower.
   * The parameters are those of {@link findNeed}.
   * @param shortages - Changed by the call.
   */
  listLeastPriorities(
    slot: Slot,
    dimensions: readonly number[],
    shortages: Float64Array,
    priority: number,
  ): readonly number[] {
    const { numbers } = this.largest;
    const first = this.largest.find(slot);
    const least: number[] = [];
    let below = priority;
    for (;;) {
      const entry = this.findLowest(slot, dimensions, shortages, below);
      if (entry === undefined) return least;
      below = this.priorityAt(slot, entry);
      const victims = this.countAtLeast(slot, entry, dimensions, shortages);
      for (let each = 0; each < victims; each += 1) least.push(below);
      // The amounts of further victims of this priority are not known.
      if (victims > LARGEST) return least;
      // The victims free at most the largest amounts: lower priorities have to free the rest.
      let isShort = false;
      for (let each = 0; each < dimensions.length; each += 1) {
        const atLargest = first + entry * LARGEST_WIDTH + (dimensions[each] ?? 0) * LARGEST;
        let shortage = shortages[each] ?? 0;
        for (let one = 0; one < victims; one += 1) shortage -= numbers[atLargest + one] ?? 0;
        shortages[each] = shortage;
        if (shortage > 0) isShort = true;
      }
      if (!isShort) return least;
    }
  }

  /** Returns the lowest entry of a node that suffices with those before it. */
  private findLowest(
    slot: Slot,
    dimensions: readonly number[],
    shortages: Float64Array,
    priority: number,
  ): number | undefined {
    const { numbers } = this.rows;
    const first = this.rows.find(slot);
    let high = this.rows.lengthOf(slot) - 1;
    while (high >= 0 && (numbers[first + high * WIDTH] ?? 0) >= priority) high -= 1;
    if (high < 0 || !isEnough(numbers, first + high * WIDTH, dimensions, shortages))
      return undefined;
    // The sums grow with the priorities: the first one that suffices is found by halving.
    let low = 0;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (isEnough(numbers, first + middle * WIDTH, dimensions, shortages)) high = middle;
      else low = middle + 1;
    }
    return low;
  }

  /** Returns the entry of a priority in the next row, with zeros when the priority is new. */
  private entryFor(priority: number): number {
    let entry = this.nextLength;
    while (entry > 0 && (this.next[(entry - 1) * WIDTH] ?? 0) > priority) entry -= 1;
    if (entry > 0 && this.next[(entry - 1) * WIDTH] === priority) return entry - 1;
    this.next = insertEntry(this.next, WIDTH, entry, this.nextLength);
    this.nextLargest = insertEntry(this.nextLargest, LARGEST_WIDTH, entry, this.nextLength);
    this.next[entry * WIDTH] = priority;
    this.nextLength += 1;
    return entry;
  }

  /** Adds an amount to the sum of an entry, and to its largest amounts, in descending order. */
  private addAmount(entry: number, dimension: number, amount: number): void {
    if (amount === 0) return;
    const { next, nextLargest } = this;
    const atSum = entry * WIDTH + 1 + dimension;
    next[atSum] = (next[atSum] ?? 0) + amount;
    const at = entry * LARGEST_WIDTH + dimension * LARGEST;
    let moved = amount;
    for (let each = at; each < at + LARGEST && moved > 0; each += 1) {
      const current = nextLargest[each] ?? 0;
      if (moved <= current) continue;
      nextLargest[each] = moved;
      moved = current;
    }
  }

  /** Returns the fewest reservations of an entry that suffice with all those of lower entries. */
  private countAtLeast(
    slot: Slot,
    entry: number,
    dimensions: readonly number[],
    shortages: Float64Array,
  ): number {
    const { numbers } = this.largest;
    const first = this.largest.find(slot) + entry * LARGEST_WIDTH;
    let most = 1;
    for (let each = 0; each < dimensions.length; each += 1) {
      const dimension = dimensions[each] ?? 0;
      let missing = shortages[each] ?? 0;
      if (entry > 0) missing -= this.heldAt(slot, entry - 1, dimension);
      // The largest amounts of most dimensions are not read.
      if (missing <= 0) continue;
      const at = first + dimension * LARGEST;
      let count = 1;
      for (; count <= LARGEST; count += 1) {
        missing -= numbers[at + count - 1] ?? 0;
        if (missing <= 0) break;
      }
      most = Math.max(most, count);
    }
    return most;
  }
}

/** Returns true when an entry and those before it hold what is short. */
function isEnough(
  rows: Float64Array,
  atEntry: number,
  dimensions: readonly number[],
  shortages: Float64Array,
): boolean {
  for (let each = 0; each < dimensions.length; each += 1)
    if ((shortages[each] ?? 0) > (rows[atEntry + 1 + (dimensions[each] ?? 0)] ?? 0)) return false;
  return true;
}

/**
 * Makes room for an entry, filled with zeros, in a row of some entries.
 * @returns The row, or a larger copy.
 */
function insertEntry(
  row: Float64Array<ArrayBuffer>,
  width: number,
  entry: number,
  entries: number,
): Float64Array<ArrayBuffer> {
  let grown = row;
  if ((entries + 1) * width > row.length) {
    grown = new Float64Array(row.length * 2);
    grown.set(row);
  }
  const at = entry * width;
  if (entry < entries) grown.copyWithin(at + width, at, entries * width);
  return grown.fill(0, at, at + width);
}
