/**
 * A queue that serves its keys round-robin: a key with a thousand items delays the single item of
 * another key by one item.
 */
export class FairQueue<Item> {
  private readonly byKey = new Map<string, Item[]>();
  private count = 0;

  /** Number of items of all keys. */
  get size(): number {
    return this.count;
  }

  /** Returns the number of items of one key. */
  countOf(key: string): number {
    return this.byKey.get(key)?.length ?? 0;
  }

  /** Adds an item after the other items of its key. */
  push(key: string, item: Item): void {
    const items = this.byKey.get(key);
    if (items === undefined) this.byKey.set(key, [item]);
    else items.push(item);
    this.count += 1;
  }

  /**
   * Removes the oldest item of the next key that `isEligible` accepts.
   * @returns Undefined when no key with items is eligible.
   */
  shift(isEligible: (key: string) => boolean): Item | undefined {
    for (const [key, items] of this.byKey) {
      if (!isEligible(key)) continue;
      const item = items.shift();
      this.count -= 1;
      this.byKey.delete(key);
      if (items.length > 0) this.byKey.set(key, items); // the key goes to the end of the rotation
      return item;
    }
    return undefined;
  }

  /**
   * Removes one item, at any position.
   * @returns False when the queue does not hold the item.
   */
  remove(key: string, item: Item): boolean {
    const items = this.byKey.get(key);
    const index = items?.indexOf(item) ?? -1;
    if (items === undefined || index < 0) return false;
    items.splice(index, 1);
    if (items.length === 0) this.byKey.delete(key);
    this.count -= 1;
    return true;
  }

  /**
   * Returns the newest item of the key with the most items, without removing the item. Undefined
   * when no key has more items than `key`.
   */
  findNewestOfLongest(key: string): Item | undefined {
    let longest: readonly Item[] = this.byKey.get(key) ?? [];
    const itemsOfKey = longest;
    for (const items of this.byKey.values()) if (items.length > longest.length) longest = items;
    return longest === itemsOfKey ? undefined : longest.at(-1);
  }
}
