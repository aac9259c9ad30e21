import { ReadEntry } from './table-reads.js';

/** Most entries of one half. The cache has two halves: the newer one, and the one before. */
const MAX_ENTRIES = 8_192;
/**
 * Most bytes of the buffers that the values of one half are parts of. Twice what the values take:
 * the records of other commits are in the same buffers.
 */
const MAX_BUFFER_BYTES = 8 * 1024 * 1024;
/** Longest value that is kept, bytes: all records that change often. */
const MAX_VALUE_BYTES = 1_024;
/** Largest buffer that is kept for a value, bytes: what an encoder of many records shares. */
const MAX_SHARED_BYTES = 32 * 1024;

/**
 * The entries that were written or read last, as the last commit and the group that is being
 * written left them. Most writes replace an entry that was written a moment before: a replica is
 * created, placed and ready within seconds. An entry of the cache is not read from the data file
 * again, so damage of its record that happens meanwhile is overwritten without being noticed.
 */
export class EntryCache {
  private newer = new Map<string, ReadEntry>();
  private older = new Map<string, ReadEntry>();
  /** Bytes of the buffers of `newer`; a buffer counts again after a value of another one. */
  private newerBytes = 0;
  private lastBuffer: ArrayBufferLike | undefined;

  /** Returns an entry; undefined when the entry is not kept. */
  get(key: string): ReadEntry | undefined {
    return this.newer.get(key) ?? this.older.get(key);
  }

  /** Keeps an entry, and the buffer that its value is a part of if others share that buffer. */
  set(entry: ReadEntry): void {
    const { key, value } = entry;
    if (value.byteLength > MAX_VALUE_BYTES) {
      this.delete(key);
      return;
    }
    const kept = withSharedBuffer(entry);
    const { buffer } = kept.value;
    if (buffer !== this.lastBuffer) {
      this.lastBuffer = buffer;
      this.newerBytes += buffer.byteLength;
    }
    if (
      (this.newer.size >= MAX_ENTRIES && !this.newer.has(key)) ||
      this.newerBytes > MAX_BUFFER_BYTES
    )
      this.startHalf(buffer);
    this.newer.set(key, kept);
  }

  delete(key: string): void {
    this.newer.delete(key);
    this.older.delete(key);
  }

  clear(): void {
    this.newer = new Map();
    this.startHalf(undefined);
  }

  /** Drops the older half, and starts a new one with a buffer. */
  private startHalf(buffer: ArrayBufferLike | undefined): void {
    this.older = this.newer;
    this.newer = new Map();
    this.newerBytes = buffer?.byteLength ?? 0;
    this.lastBuffer = buffer;
  }
}

/** Copies a value that is a part of a larger buffer than encoders share. */
function withSharedBuffer(entry: ReadEntry): ReadEntry {
  const { key, modRevision, lease, value, hash } = entry;
  const { buffer } = value;
  if (buffer.byteLength <= MAX_SHARED_BYTES || buffer.byteLength === value.byteLength) return entry;
  return new ReadEntry(key, modRevision, lease, new Uint8Array(value), hash);
}
