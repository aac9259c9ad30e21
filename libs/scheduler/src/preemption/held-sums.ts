import type { Slot } from '../columns/value-column.js';
import type { Claim } from '../reservations/claim.js';
import { DIMENSIONS, REPLICA_DIMENSION } from './demand.js';
import { NEVER_FITS, toNeed } from './need.js';
import { RowStore } from './row-store.js';

/** Largest amounts of a priority that are kept. A bound counts one victim more at most. */
const LARGEST = 3;

/** Where the largest amounts begin, after the priority and the sums. */
const AT_LARGEST = 1 + DIMENSIONS;

/** Numbers of one priority of a node. */
const WIDTH = AT_LARGEST + DIMENSIONS * LARGEST;

/**
 * What the replicas of each node hold that are not leaving, by priority. The row of a node has an
 * entry for each of its priorities, from the lowest to the highest: the priority, what this
 * priority and all lower ones hold of each dimension, and the largest amounts of this priority.
 */
export class HeldSums {
  private readonly rows = new RowStore(WIDTH);
  /** The row of the node that is being summed. */
  private next = new Float64Array(WIDTH);
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
    const at = this.entryFor(priority) * WIDTH;
    const { next } = this;
    addAmount(next, at, 0, resources.cpuMillis);
    addAmount(next, at, 1, resources.memoryBytes);
    addAmount(next, at, 2, resources.storageBytes);
    addAmount(next, at, 3, resources.bandwidthBps);
    addAmount(next, at, 4, resources.gpus);
    addAmount(next, at, REPLICA_DIMENSION, 1);
  }

  /** Stores the sums that {@link start} has begun as those of a node. */
  store(slot: Slot): void {
    const { next, nextLength } = this;
    for (let entry = 1; entry < nextLength; entry += 1) {
      const at = entry * WIDTH;
      for (let each = at + 1; each < at + AT_LARGEST; each += 1)
        next[each] = (next[each] ?? 0) + (next[each - WIDTH] ?? 0);
    }
    this.rows.set(slot, next, nextLength);
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
    const { rows } = this;
    const { numbers } = rows;
    const first = rows.find(slot);
    let high = rows.lengthOf(slot) - 1;
    while (high >= 0 && (numbers[first + high * WIDTH] ?? 0) >= priority) high -= 1;
    if (high < 0 || !isEnough(numbers, first + high * WIDTH, dimensions, shortages))
      return NEVER_FITS;
    // The sums grow with the priorities: the first one that suffices is found by halving.
    let low = 0;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (isEnough(numbers, first + middle * WIDTH, dimensions, shortages)) high = middle;
      else low = middle + 1;
    }
    const at = first + low * WIDTH;
    const victims = countAtLeast(numbers, at, low === 0, dimensions, shortages);
    return toNeed({ priority: numbers[at] ?? 0, victims });
  }

  /** Returns the entry of a priority in the next row, with zeros when the priority is new. */
  private entryFor(priority: number): number {
    let entry = this.nextLength;
    while (entry > 0 && (this.next[(entry - 1) * WIDTH] ?? 0) > priority) entry -= 1;
    if (entry > 0 && this.next[(entry - 1) * WIDTH] === priority) return entry - 1;
    const end = this.nextLength * WIDTH;
    if (end + WIDTH > this.next.length) {
      const grown = new Float64Array(this.next.length * 2);
      grown.set(this.next);
      this.next = grown;
    }
    const at = entry * WIDTH;
    if (at < end) this.next.copyWithin(at + WIDTH, at, end);
    this.next.fill(0, at, at + WIDTH);
    this.next[at] = priority;
    this.nextLength += 1;
    return entry;
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

/** Returns the fewest reservations of an entry that suffice with all those of lower entries. */
function countAtLeast(
  rows: Float64Array,
  atEntry: number,
  isFirst: boolean,
  dimensions: readonly number[],
  shortages: Float64Array,
): number {
  let most = 1;
  for (let each = 0; each < dimensions.length; each += 1) {
    const dimension = dimensions[each] ?? 0;
    const below = isFirst ? 0 : (rows[atEntry - WIDTH + 1 + dimension] ?? 0);
    let missing = (shortages[each] ?? 0) - below;
    const at = atEntry + AT_LARGEST + dimension * LARGEST;
    let count = 1;
    for (; count <= LARGEST; count += 1) {
      missing -= rows[at + count - 1] ?? 0;
      if (missing <= 0) break;
    }
    most = Math.max(most, count);
  }
  return most;
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
