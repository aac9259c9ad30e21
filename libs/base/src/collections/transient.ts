/**
 * A map whose entries come and go all the time, such as calls in progress by id. Use this class
 * instead of `Map` where each change of the cluster adds an entry and deletes it soon after.
 *
 * V8 replaces the table of a `Map` after many deletions, and lets the former table refer to the next
 * one. Once one table is in the old generation, it keeps all later tables, with the entries that they
 * had at their end, until the next collection of the old generation: entries that live for a
 * moment then cost as much as those that stay. This class replaces its whole `Map` before V8 replaces
 * the table, so that nothing refers to the new table but the map.
 *
 * An iterator shows the entries of the time of its creation, and may or may not show later changes.
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
    // V8 replaces the table of a map that becomes empty.
    if (map.size === 1 && map.has(key)) {
      this.clear();
      return true;
    }
    if (!map.delete(key)) return false;
    this.deletions += 1;
    if (this.deletions >= map.size) this.replaceWith(new Map(map));
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
