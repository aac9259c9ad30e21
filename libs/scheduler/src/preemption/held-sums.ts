import type { Slot } from '../columns/value-column.js';
import type { HeldReservation } from '../input/reservation.js';
import { DIMENSIONS, REPLICA_DIMENSION } from './demand.js';
import { NEVER_FITS, toNeed } from './need.js';

/** Largest reservations of a priority whose sums are kept. A bound counts one more at most. */
const LARGEST = 3;

/** Where the sums of the largest reservations begin, after the priority and the sums. */
const AT_LARGEST = 1 + DIMENSIONS;

/** Numbers of one priority of a node. */
const WIDTH = AT_LARGEST + DIMENSIONS * LARGEST;

/**
 * What the replicas of each node hold that are not leaving, by priority. The row of a node has an
 * entry for each of its priorities, from the lowest to the highest: the priority, what this
 * priority and all lower ones hold of each dimension, and the sums of the largest, the two largest,
 * … amounts of this priority.
 */
export class HeldSums {
  private readonly rows: Float64Array[] = [];
  private readonly lengths: number[] = [];
  private readonly priorities: number[] = [];

  /** Number of different priorities on a node. */
  lengthOf(slot: Slot): number {
    return this.lengths[slot] ?? 0;
  }

  /** Returns a priority of a node. */
  priorityAt(slot: Slot, entry: number): number {
    return this.rows[slot]?.[entry * WIDTH] ?? 0;
  }

  /** Returns what a priority of a node and all lower ones hold of a dimension. */
  heldAt(slot: Slot, entry: number, dimension: number): number {
    return this.rows[slot]?.[entry * WIDTH + 1 + dimension] ?? 0;
  }

  /** Returns the entry of a priority in the row of a node that has the priority. */
  findEntry(slot: Slot, priority: number): number {
    let entry = 0;
    while (this.priorityAt(slot, entry) !== priority) entry += 1;
    return entry;
  }

  /** Sums the reservations of a node. */
  set(slot: Slot, reservations: readonly HeldReservation[]): void {
    const { priorities } = this;
    priorities.length = 0;
    for (const { priority, leaving } of reservations) if (!leaving) insert(priorities, priority);
    const row = this.clearRow(slot, priorities.length);
    for (const { priority, leaving, resources } of reservations) {
      if (leaving) continue;
      const at = priorities.indexOf(priority) * WIDTH;
      addAmount(row, at, 0, resources.cpuMillis);
      addAmount(row, at, 1, resources.memoryBytes);
      addAmount(row, at, 2, resources.storageBytes);
      addAmount(row, at, 3, resources.bandwidthBps);
      addAmount(row, at, 4, resources.gpus);
      addAmount(row, at, REPLICA_DIMENSION, 1);
    }
    for (let entry = 0; entry < priorities.length; entry += 1) {
      const at = entry * WIDTH;
      row[at] = priorities[entry] ?? 0;
      if (entry > 0)
        for (let each = at + 1; each < at + AT_LARGEST; each += 1)
          row[each] = (row[each] ?? 0) + (row[each - WIDTH] ?? 0);
    }
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
    const row = this.rows[slot];
    if (row === undefined) return NEVER_FITS;
    let high = this.lengthOf(slot) - 1;
    while (high >= 0 && (row[high * WIDTH] ?? 0) >= priority) high -= 1;
    if (high < 0 || !isEnough(row, high, dimensions, shortages)) return NEVER_FITS;
    // The sums grow with the priorities: the first one that suffices is found by halving.
    let low = 0;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (isEnough(row, middle, dimensions, shortages)) high = middle;
      else low = middle + 1;
    }
    const victims = countAtLeast(row, low, dimensions, shortages);
    return toNeed({ priority: row[low * WIDTH] ?? 0, victims });
  }

  /** Returns the row of a node, with zeros and room for some entries. */
  private clearRow(slot: Slot, length: number): Float64Array {
    this.lengths[slot] = length;
    const row = this.rows[slot];
    if (row !== undefined && row.length >= length * WIDTH) return row.fill(0, 0, length * WIDTH);
    return (this.rows[slot] = new Float64Array(length * WIDTH));
  }
}

/** Returns true when an entry and those before it hold what is short. */
function isEnough(
  row: Float64Array,
  entry: number,
  dimensions: readonly number[],
  shortages: Float64Array,
): boolean {
  const at = entry * WIDTH + 1;
  for (let each = 0; each < dimensions.length; each += 1)
    if ((shortages[each] ?? 0) > (row[at + (dimensions[each] ?? 0)] ?? 0)) return false;
  return true;
}

/** Returns the fewest reservations of an entry that suffice with all those of the entries before. */
function countAtLeast(
  row: Float64Array,
  entry: number,
  dimensions: readonly number[],
  shortages: Float64Array,
): number {
  let most = 1;
  for (let each = 0; each < dimensions.length; each += 1) {
    const dimension = dimensions[each] ?? 0;
    const below = entry === 0 ? 0 : (row[(entry - 1) * WIDTH + 1 + dimension] ?? 0);
    let missing = (shortages[each] ?? 0) - below;
    const at = entry * WIDTH + AT_LARGEST + dimension * LARGEST;
    let count = 1;
    for (; count <= LARGEST; count += 1) {
      missing -= row[at + count - 1] ?? 0;
      if (missing <= 0) break;
    }
    most = Math.max(most, count);
  }
  return most;
}

/** Inserts a priority into an ascending list without duplicates. */
function insert(priorities: number[], priority: number): void {
  let at = priorities.length;
  while (at > 0 && (priorities[at - 1] ?? 0) > priority) at -= 1;
  if (at > 0 && priorities[at - 1] === priority) return;
  priorities.splice(at, 0, priority);
}

/** Adds an amount to the sum of an entry, and to its largest amounts, in descending order. */
function addAmount(row: Float64Array, atEntry: number, dimension: number, amount: number): void {
  if (amount === 0) return;
  row[atEntry + 1 + dimension] = (row[atEntry + 1 + dimension] ?? 0) + amount;
  const at = atEntry + AT_LARGEST + dimension * LARGEST;
  let next = amount;
  for (let each = at; each < at + LARGEST && next > 0; each += 1) {
    const current = row[each] ?? 0;
    if (next <= current) continue;
    row[each] = next;
    next = current;
  }
}
