/**
 * Largest map that is copied, which takes 0.2 to 3 ms. A larger map keeps the tables of V8.
 */
const MAX_COPIED = 4_096;

/**
 * A map whose entries come and go all the time, such as calls in progress by id. Use this class
 * instead of `Map` where each change of the cluster adds an entry and deletes it soon after.
 *
 * V8 replaces the table of a `Map` after enough deletions, and that of a small map whenever it
 * becomes empty; the former table refers to the next one. Once one table is in the old generation,
 * each later table stays in memory until the next collection of that generation, with the entries
 * that the table had at its end. Entries that live for a moment then cost as much as entries that
 * stay. This class makes a new `Map`, to which no former table refers, when the map becomes empty
 * and after as many deletions as entries are left (up to {@link MAX_COPIED} entries).
 *
 * An iterator shows every entry that stays. After the creation of the iterator, an entry that is
 * added or deleted may or may not appear, and a changed entry may appear with its former value.
 */
export class TransientMap<Key, Value> {
  private map = new Map<Key, Value>();
  /** Deletions from {@link map}. */
  private deletions = 0;

  /** Number of entries. */
  get size(): number {
    return this.map.size;
  }

  get(key: Key): Value | undefined {
    return this.map.get(key);
  }

  has(key: Key): boolean {
    return this.map.has(key);
  }

  set(key: Key, value: Value): this {
    this.map.set(key, value);
    return this;
  }

  /** @returns False when there was no such entry. */
  delete(key: Key): boolean {
    const { map } = this;
    if (!map.delete(key)) return false;
    this.deletions += 1;
    const { size } = map;
    if (size === 0) this.replaceWith(new Map());
    else if (this.deletions >= size && size <= MAX_COPIED) this.replaceWith(new Map(map));
    return true;
  }

  clear(): void {
    this.replaceWith(new Map());
  }

  keys(): IterableIterator<Key> {
    return this.map.keys();
  }

  values(): IterableIterator<Value> {
    return this.map.values();
  }

  [Symbol.iterator](): IterableIterator<[Key, Value]> {
    return this.map[Symbol.iterator]();
  }

  private replaceWith(map: Map<Key, Value>): void {
    this.map = map;
    this.deletions = 0;
  }
}

/** A set whose values come and go all the time; see {@link TransientMap}. */
export class TransientSet<Value> {
  private readonly entries = new TransientMap<Value, undefined>();

  /** Number of values. */
  get size(): number {
    return this.entries.size;
  }

  has(value: Value): boolean {
    return this.entries.has(value);
  }

  add(value: Value): this {
    this.entries.set(value, undefined);
    return this;
  }

  /** @returns False when the set did not have the value. */
  delete(value: Value): boolean {
    return this.entries.delete(value);
  }

  [Symbol.iterator](): IterableIterator<Value> {
    return this.entries.keys();
  }
}
