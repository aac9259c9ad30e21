/**
 * A queue that serves its keys in turn: a key with a thousand items delays another's single one by
 * one item.
 */
export class FairQueue<Item> {
  private readonly byKey = new Map<string, Item[]>();
  private count = 0;

  get size(): number {
    return this.count;
  }

  /** How many items of this key wait. */
  sizeOf(key: string): number {
    return this.byKey.get(key)?.length ?? 0;
  }

  push(key: string, item: Item): void {
    const items = this.byKey.get(key);
    if (items === undefined) this.byKey.set(key, [item]);
    else items.push(item);
    this.count += 1;
  }

  /** The oldest item of the key whose turn it is, among those that `mayGo`. */
  take(mayGo: (key: string) => boolean): Item | undefined {
    for (const [key, items] of this.byKey) {
      if (!mayGo(key)) continue;
      const item = items.shift();
      this.count -= 1;
      this.byKey.delete(key);
      if (items.length > 0) this.byKey.set(key, items); // to the end of the line
      return item;
    }
    return undefined;
  }

  /** Takes one item out, wherever it stands. @returns false when it is not there any more. */
  remove(key: string, item: Item): boolean {
    const items = this.byKey.get(key);
    const index = items?.indexOf(item) ?? -1;
    if (items === undefined || index < 0) return false;
    items.splice(index, 1);
    if (items.length === 0) this.byKey.delete(key);
    this.count -= 1;
    return true;
  }

  /** The newest item of the key with the most, when that is more than `key` has. */
  newestOfLongest(key: string): Item | undefined {
    let longest: readonly Item[] = this.byKey.get(key) ?? [];
    const own = longest;
    for (const items of this.byKey.values()) if (items.length > longest.length) longest = items;
    return longest === own ? undefined : longest.at(-1);
  }
}
