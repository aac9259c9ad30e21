import { ReadEntry } from './table-reads.js';

/** Most entries of one half. The cache has two halves: the newer one, and the one before. */
const MAX_ENTRIES = 8_192;
/** Longest value that is kept, bytes: all records that change often. */
const MAX_VALUE_BYTES = 1_024;

/**
 * The entries that were written or read last, as the last commit left them. Most writes replace an
 * entry that was written a moment before: a replica is created, placed and ready within seconds. An
 * entry of the cache is not read from the data file again, so damage of its record that happens
 * meanwhile is overwritten without being noticed.
 */
export class EntryCache {
  private newer = new Map<string, ReadEntry>();
  private older = new Map<string, ReadEntry>();

  /** Returns an entry as the last commit left it; undefined when the entry is not kept. */
  get(key: string): ReadEntry | undefined {
    return this.newer.get(key) ?? this.older.get(key);
  }

  /** Keeps an entry that is a part of the last commit. */
  set(entry: ReadEntry): void {
    if (entry.value.byteLength > MAX_VALUE_BYTES) {
      this.delete(entry.key);
      return;
    }
    if (this.newer.size >= MAX_ENTRIES && !this.newer.has(entry.key)) {
      this.older = this.newer;
      this.newer = new Map();
    }
    this.newer.set(entry.key, withOwnValue(entry));
  }

  delete(key: string): void {
    this.newer.delete(key);
    this.older.delete(key);
  }

  clear(): void {
    this.newer.clear();
    this.older.clear();
  }
}

/** Copies a value that is a part of a larger buffer, which the cache would keep in memory. */
function withOwnValue(entry: ReadEntry): ReadEntry {
  const { key, modRevision, lease, value, keyBytes, hash } = entry;
  if (value.buffer.byteLength === value.byteLength) return entry;
  return new ReadEntry(key, modRevision, lease, new Uint8Array(value), keyBytes, hash);
}
