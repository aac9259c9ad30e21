import { ReadEntry } from './table-reads.js';

/** How much each half of a {@link TwoHalfCache} keeps at most. */
interface HalfLimits {
  readonly entries: number;
  /** Bytes of the buffers that the values are parts of. */
  readonly bufferBytes: number;
}

/**
 * Limits for entries that were read from the data file: enough for the nodes of a large cluster,
 * whose entries each placement compares.
 */
const READ_LIMITS: HalfLimits = { entries: 16_384, bufferBytes: 8 * 1024 * 1024 };
/**
 * Limits for entries that were written: enough for the replicas that are assigned and not ready
 * yet, which takes about 0.1 s. With 13,000 replicas per second and two writes for each, an entry
 * is kept for 0.15 to 0.3 s. V8 moves objects that outlive two collections of the young generation,
 * which are 0.4 s apart at this rate, to the old generation. The buffers take about twice what the
 * values take, because the records of other commits are in the same buffers.
 */
const WRITTEN_LIMITS: HalfLimits = { entries: 4_096, bufferBytes: 2 * 1024 * 1024 };
/** Longest value that is kept, bytes: all records that change often. */
const MAX_VALUE_BYTES = 1_024;
/** Largest buffer that is kept for a value, bytes: what an encoder of many records shares. */
const MAX_SHARED_BYTES = 32 * 1024;

/**
 * The entries that were read last, and those that were written last, as the last commit and the
 * group that is being written left them. Values of more than 1,024 bytes are not kept. Most writes
 * replace an entry that was written a moment before: a replica is created with its node, and ready
 * soon after. An entry of the cache is not read from the data file again, so damage of its record
 * that happens meanwhile is overwritten without being noticed.
 */
export class EntryCache {
  private readonly read = new TwoHalfCache(READ_LIMITS);
  private readonly written = new TwoHalfCache(WRITTEN_LIMITS);

  /** Returns an entry; undefined when the entry is not kept. */
  get(key: string): ReadEntry | undefined {
    return this.written.get(key) ?? this.read.get(key);
  }

  /**
   * Keeps an entry that was read from the data file because {@link get} had returned undefined. An
   * entry that was read at another time could be older than the written entry of its key.
   */
  addRead(entry: ReadEntry): void {
    this.read.set(entry);
  }

  /**
   * Keeps an entry that was written.
   * @param isNew - True when the key had no entry before, so that none was read.
   */
  addWritten(entry: ReadEntry, isNew: boolean): void {
    if (!isNew) this.read.delete(entry.key);
    this.written.set(entry);
  }

  delete(key: string): void {
    this.read.delete(key);
    this.written.delete(key);
  }

  clear(): void {
    this.read.clear();
    this.written.clear();
  }
}

/**
 * A cache of two halves. When the newer half reaches a limit, the cache drops the older half, and
 * begins a new one.
 */
class TwoHalfCache {
  private newer = new Map<string, ReadEntry>();
  private older = new Map<string, ReadEntry>();
  /** Bytes of the buffers of `newer`; a shared buffer counts again after a value of another one. */
  private newerBytes = 0;
  /** The shared buffer that was counted last. */
  private lastShared: ArrayBufferLike | undefined;

  constructor(private readonly limits: HalfLimits) {}

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
      (this.newer.size >= this.limits.entries && !this.newer.has(key)) ||
      this.newerBytes > this.limits.bufferBytes
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
