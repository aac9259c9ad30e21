import type { ReadEntry } from './table-reads.js';

/** Most entries of one generation. The cache holds two generations. */
const MAX_ENTRIES = 8_192;
/** Longest value that is kept, bytes: all records that change often. */
const MAX_VALUE_BYTES = 1_024;

/**
 * The entries that were written or read last, as the last commit left them. Most writes replace an
 * entry that was written a moment before: a replica is created, placed and ready within seconds.
 */
export class EntryCache {
  private young = new Map<string, ReadEntry>();
  private old = new Map<string, ReadEntry>();

  /** Returns an entry as the last commit left it; undefined when the entry is not kept. */
  get(key: string): ReadEntry | undefined {
    return this.young.get(key) ?? this.old.get(key);
  }

  /** Keeps an entry that is a part of the last commit. */
  set(entry: ReadEntry): void {
    if (entry.value.byteLength > MAX_VALUE_BYTES) {
      this.delete(entry.key);
      return;
    }
    if (this.young.size >= MAX_ENTRIES && !this.young.has(entry.key)) {
      this.old = this.young;
      this.young = new Map();
    }
    this.young.set(entry.key, entry);
  }

  delete(key: string): void {
    this.young.delete(key);
    this.old.delete(key);
  }

  clear(): void {
    this.young.clear();
    this.old.clear();
  }
}
