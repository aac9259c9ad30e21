import type { Slot } from '../columns/value-column.js';

/** Entries for which there is room at first. */
const FIRST_ENTRIES = 64;

/**
 * Rows of numbers, one for each slot, of different lengths in one array. A row that outgrows its
 * room moves to the end; what such rows leave behind is reclaimed when the array is full.
 */
export class RowStore {
  /** All rows. Replaced when it grows: read it anew in each call. */
  numbers: Float64Array;
  /** Where the row of a slot begins. */
  private starts = new Int32Array(0);
  /** Entries of the row of a slot, and entries for which it has room. */
  private lengths = new Int32Array(0);
  private rooms = new Int32Array(0);
  /** Numbers up to the end of the last row. */
  private used = 0;

  /** @param width - Numbers of an entry. */
  constructor(private readonly width: number) {
    this.numbers = new Float64Array(FIRST_ENTRIES * width);
  }

  /** Number of entries of a row; 0 for a slot without one. */
  lengthOf(slot: Slot): number {
    return this.lengths[slot] ?? 0;
  }

  /** Returns where the row of a slot begins. */
  find(slot: Slot): number {
    return this.starts[slot] ?? 0;
  }

  /** Stores the first `length` entries of an array as the row of a slot. */
  set(slot: Slot, entries: Float64Array, length: number): void {
    if (slot >= this.starts.length) this.growSlots(slot + 1);
    this.lengths[slot] = length;
    if (length > (this.rooms[slot] ?? 0)) {
      if (this.used + length * this.width > this.numbers.length) this.growRows(slot, length);
      this.starts[slot] = this.used;
      this.rooms[slot] = length;
      this.used += length * this.width;
    }
    const start = this.starts[slot] ?? 0;
    for (let each = 0; each < length * this.width; each += 1)
      this.numbers[start + each] = entries[each] ?? 0;
  }

  private growSlots(slots: number): void {
    [this.starts, this.lengths, this.rooms] = [this.starts, this.lengths, this.rooms].map(
      (column) => {
        const grown = new Int32Array(slots * 2);
        grown.set(column);
        return grown;
      },
    ) as [Int32Array<ArrayBuffer>, Int32Array<ArrayBuffer>, Int32Array<ArrayBuffer>];
  }

  /** Moves all rows but that of `replaced` beside each other, with room for `length` entries. */
  private growRows(replaced: Slot, length: number): void {
    const { width, numbers, starts, lengths, rooms } = this;
    let total = length;
    for (let slot = 0; slot < lengths.length; slot += 1)
      if (slot !== replaced) total += lengths[slot] ?? 0;
    this.numbers = new Float64Array(total * width * 2);
    this.used = 0;
    for (let slot = 0; slot < lengths.length; slot += 1) {
      if (slot === replaced) continue;
      const start = starts[slot] ?? 0;
      const size = (lengths[slot] ?? 0) * width;
      this.numbers.set(numbers.subarray(start, start + size), this.used);
      starts[slot] = this.used;
      rooms[slot] = lengths[slot] ?? 0;
      this.used += size;
    }
  }
}
