/**
 * A set of strings in the order of their code units, for lists that are read page by page. Adding a
 * key costs a binary search and a move of the keys after it; keys that arrive in order are appended.
 */
export class SortedKeys {
  private readonly keys: string[] = [];

  get size(): number {
    return this.keys.length;
  }

  /** Adds a key; does nothing when the set contains the key. */
  add(key: string): void {
    const { keys } = this;
    const last = keys.at(-1);
    if (last === undefined || last < key) {
      keys.push(key);
      return;
    }
    const index = this.findFirst(key);
    if (keys[index] !== key) keys.splice(index, 0, key);
  }

  /** Removes a key; does nothing when the set does not contain the key. */
  delete(key: string): void {
    const index = this.findFirst(key);
    if (this.keys[index] === key) this.keys.splice(index, 1);
  }

  /**
   * Lists keys in ascending order. The set must not change during the iteration.
   * @param after - Only keys above this key. Default: all keys.
   */
  *after(after?: string): Generator<string, void> {
    const { keys } = this;
    let index = after === undefined ? 0 : this.findFirst(after);
    if (keys[index] === after) index += 1;
    for (; index < keys.length; index += 1) yield keys[index] as string;
  }

  /** Returns the index of the first key that is not below `key`. */
  private findFirst(key: string): number {
    const { keys } = this;
    let low = 0;
    let high = keys.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((keys[middle] as string) < key) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}
