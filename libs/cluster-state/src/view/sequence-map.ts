/** Empty places that a map may have at any time, so that small maps are rarely compacted. */
const MAX_HOLES = 16;

/** Up to this number of entries, arrays have no space to grow: most workloads have few replicas. */
const MAX_EXACT = 8;

const DONE = { done: true, value: undefined } as const;

/**
 * A map by sequence number, for entries that are added in ascending order. Keys and values are in two
 * arrays: 16 bytes for each entry, and space to grow, where a `Map` takes 29 to 57. An append costs
 * what `push` costs, a look-up at most a binary search, and an entry between others a move of all
 * entries after it. The places of deleted values are removed when half of all places are empty.
 */
export class SequenceMap<Value extends object> {
  /** Ascending. */
  private keys: number[] = [];
  /** At the index of the key; undefined for a deleted value. */
  private entries: (Value | undefined)[] = [];
  private holes = 0;
  /** Counts the changes after which an entry has another index. */
  private moves = 0;

  /** Number of values. */
  get size(): number {
    return this.keys.length - this.holes;
  }

  /** Returns the value of a key; undefined when there is none. */
  get(key: number): Value | undefined {
    const index = this.findIndex(key);
    return index < 0 ? undefined : this.entries[index];
  }

  /** @param key - A safe integer. */
  set(key: number, value: Value): this {
    const { keys, entries } = this;
    const last = keys[keys.length - 1];
    if (last === undefined || last < key) {
      this.append(key, value);
      return this;
    }
    const index = this.findIndex(key);
    if (index >= 0) {
      if (entries[index] === undefined) this.holes -= 1;
      entries[index] = value;
      return this;
    }
    const at = this.findFirstAbove(key);
    keys.splice(at, 0, key);
    entries.splice(at, 0, value);
    this.moves += 1;
    return this;
  }

  /** @returns False when the map does not have the key. */
  delete(key: number): boolean {
    const index = this.findIndex(key);
    if (index < 0 || this.entries[index] === undefined) return false;
    this.entries[index] = undefined;
    this.holes += 1;
    if (this.holes > MAX_HOLES && 2 * this.holes > this.keys.length) this.compact();
    return true;
  }

  /**
   * Iterates over the values in ascending order of their keys. The map may change meanwhile: values
   * that were deleted are left out, and values of higher keys than the last one are included.
   * @param after - Only values of keys above this key. Default: all values.
   */
  values(after = -Infinity): IterableIterator<Value> {
    let lastKey = after;
    let index = this.findFirstAbove(lastKey);
    let { moves } = this;
    let hasEnded = false;
    const next = (): IteratorResult<Value, undefined> => {
      if (hasEnded) return DONE;
      if (moves !== this.moves) index = this.findFirstAbove(lastKey);
      ({ moves } = this);
      const { entries } = this;
      while (index < entries.length) {
        const value = entries[index];
        index += 1;
        if (value === undefined) continue;
        lastKey = this.keys[index - 1] ?? lastKey;
        return { done: false, value };
      }
      hasEnded = true;
      return DONE;
    };
    const iterator = { next, [Symbol.iterator]: (): IterableIterator<Value> => iterator };
    return iterator;
  }

  private append(key: number, value: Value): void {
    if (this.keys.length < MAX_EXACT) {
      this.keys = this.keys.concat([key]);
      this.entries = this.entries.concat([value]);
    } else {
      this.keys.push(key);
      this.entries.push(value);
    }
  }

  /** Returns the index of a key, also of one whose value was deleted; -1 for an unknown key. */
  private findIndex(key: number): number {
    const { keys } = this;
    const first = keys[0];
    if (first === undefined || key < first) return -1;
    // Keys are integers: without gaps, a key is at this index, and with gaps before it.
    const highest = Math.min(keys.length - 1, key - first);
    if (keys[highest] === key) return highest;
    const index = this.findFirstAbove(key, highest) - 1;
    return keys[index] === key ? index : -1;
  }

  /**
   * Returns the index of the first key above `key`; the number of keys when there is none.
   * @param highest - No key above this index is at most `key`.
   */
  private findFirstAbove(key: number, highest = this.keys.length - 1): number {
    const { keys } = this;
    let [low, high] = [0, highest + 1];
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((keys[middle] ?? Infinity) > key) high = middle;
      else low = middle + 1;
    }
    return low;
  }

  private compact(): void {
    const { entries } = this;
    this.keys = this.keys.filter((_, index) => entries[index] !== undefined);
    this.entries = entries.filter((value) => value !== undefined);
    this.holes = 0;
    this.moves += 1;
  }
}
