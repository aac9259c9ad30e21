import { ReadEntry } from './table-reads.js';

/**
 * Most entries of one half. The cache has two halves: the newer one, and the one before. Enough for
 * the nodes of a large cluster, whose entries each placement compares, beside as many replicas.
 */
const MAX_ENTRIES = 16_384;
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
  /** Bytes of the buffers of `newer`; a shared buffer counts again after a value of another one. */
  private newerBytes = 0;
  /** The shared buffer that was counted last. */
  private lastShared: ArrayBufferLike | undefined;

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
    this.countBuffer(kept.value);
    if (
      (this.newer.size >= MAX_ENTRIES && !this.newer.has(key)) ||
      this.newerBytes > MAX_BUFFER_BYTES
    ) {
      this.startHalf();
      this.countBuffer(kept.value);
    }
    this.newer.set(key, kept);
  }

  delete(key: string): void {
    this.newer.delete(key);
    this.older.delete(key);
  }

  clear(): void {
    this.newer = new Map();
    this.startHalf();
  }

  /** Adds the bytes that are kept for a value, unless its buffer is that of the value before. */
  private countBuffer({ buffer, byteLength }: Uint8Array): void {
    if (buffer === this.lastShared) return;
    this.newerBytes += buffer.byteLength;
    if (buffer.byteLength > byteLength) this.lastShared = buffer;
  }

  /** Drops the older half. The newer half becomes the older one, and an empty half the newer. */
  private startHalf(): void {
    this.older = this.newer;
    this.newer = new Map();
    this.newerBytes = 0;
    this.lastShared = undefined;
  }
}

/** Copies a value that is a part of a larger buffer than encoders share. */
function withSharedBuffer(entry: ReadEntry): ReadEntry {
  const { key, modRevision, lease, value, hash } = entry;
  const { buffer } = value;
  if (buffer.byteLength <= MAX_SHARED_BYTES || buffer.byteLength === value.byteLength) return entry;
  return new ReadEntry(key, modRevision, lease, new Uint8Array(value), hash);
}
