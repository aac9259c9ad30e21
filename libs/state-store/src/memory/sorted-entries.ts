import type { StoredEntry } from '../engine/storage.js';
import { compareKeys } from '../utf8.js';

/** Entries indexed by key and sorted by the bytes of their keys. */
export class SortedEntries {
  private readonly byKey = new Map<string, StoredEntry>();
  private readonly keys: string[] = [];

  get(key: string): StoredEntry | undefined {
    return this.byKey.get(key);
  }

  put(entry: StoredEntry): void {
    if (!this.byKey.has(entry.key))
      this.keys.splice(this.findFirstNotBefore(entry.key), 0, entry.key);
    this.byKey.set(entry.key, entry);
  }

  delete(key: string): void {
    if (this.byKey.delete(key)) this.keys.splice(this.findFirstNotBefore(key), 1);
  }

  /**
   * Yields the entries whose key starts with `prefix` and sorts after `after`, in key order. Do not
   * change the entries during a scan.
   */
  *scan(prefix: string, after: string | undefined): Iterable<StoredEntry> {
    // keys with a common prefix are adjacent in byte order
    const from = after !== undefined && compareKeys(after, prefix) >= 0 ? after : prefix;
    for (let index = this.findFirstNotBefore(from); index < this.keys.length; index += 1) {
      const key = this.keys[index] ?? '';
      if (key === after) continue;
      if (!key.startsWith(prefix)) return;
      const entry = this.byKey.get(key);
      if (entry !== undefined) yield entry;
    }
  }

  /** Returns the index of the first key that does not sort before `key`. */
  private findFirstNotBefore(key: string): number {
    let low = 0;
    let high = this.keys.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (compareKeys(this.keys[middle] ?? '', key) < 0) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}
