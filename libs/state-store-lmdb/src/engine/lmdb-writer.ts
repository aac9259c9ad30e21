import type {
  HistorySegment,
  HistoryWindow,
  LeaseId,
  LoggedTransaction,
  Revision,
  StorageWriter,
  StoredEntry,
  StoreHead,
} from '@cloudless/state-store';
import type { AbsentKeys } from './absent-keys.js';
import { ByteWriter } from './byte-writer.js';
import {
  addHashes,
  encodeEntry,
  encodeHead,
  hashRecord,
  getSpace,
  encodeLease,
  encodeSegmentKey,
  encodeTransaction,
  sealRecord,
  startRecord,
} from './records.js';
import type { EntryCache } from './entry-cache.js';
import { encodeKey } from './entry-key.js';
import { encodeLeasedKey } from './leased-key.js';
import { HEAD_KEY, ReadEntry, readEntry, readHead, readNextKey } from './table-reads.js';
import { endOfPrefix, type Table, type Tables } from './tables.js';

/**
 * Transactions of one group share a history record up to this size. LMDB needs much time to
 * allocate space for larger records.
 */
const SEGMENT_BYTES = 64 * 1024;

const EMPTY = Buffer.alloc(0);
/** Shared by all writers, because LMDB copies the bytes of a put at once. */
const segmentWriter = new ByteWriter(2 * SEGMENT_BYTES);

/** Writes of one group commit, within one LMDB transaction. Used for one group only. */
export class LmdbWriter implements StorageWriter {
  private added: HistorySegment[] = [];
  private dropped: readonly HistorySegment[] = [];
  /** Change of the sum of all record hashes. */
  private hashSumChange = 0;

  /**
   * @param cache - Entries of the last commit, which the writer reads and updates. The caller has
   *   to clear the cache when the group is not committed.
   * @param absentKeys - Keys without an entry in the last commit, which the writer reads and
   *   updates. The caller has to clear them when the group is not committed.
   */
  constructor(
    private readonly tables: Tables,
    private readonly historyWindow: HistoryWindow,
    private readonly cache: EntryCache,
    private readonly absentKeys: AbsentKeys,
  ) {}

  /** Updates the history window. Must run once, after the writes are durable. */
  onCommitted(): void {
    this.historyWindow.advance(this.added, this.dropped);
  }

  head(): StoreHead {
    return readHead(this.tables);
  }

  get(key: string, isExpected = true): ReadEntry | undefined {
    // A new key is in neither map of the cache, so the absent keys answer sooner.
    if (!isExpected && this.absentKeys.has(key)) return undefined;
    const cached = this.cache.get(key);
    if (cached !== undefined) return cached;
    if (isExpected && this.absentKeys.has(key)) return undefined;
    const entry = readEntry(this.tables, key);
    if (entry !== undefined) this.cache.addRead(entry);
    else this.absentKeys.learn(key, (missed) => readNextKey(this.tables, missed));
    return entry;
  }

  put(entry: StoredEntry, before: StoredEntry | undefined): void {
    if (before?.lease !== entry.lease) {
      this.detachFromLease(before);
      if (entry.lease !== undefined)
        void this.tables.leasedKeys.put(encodeLeasedKey(entry.lease, entry.key), EMPTY);
    }
    if (before === undefined) this.absentKeys.recordPut(entry.key);
    else this.subtractEntry(before);
    const key = encodeKey(entry.key);
    const record = encodeEntry(entry);
    const hash = hashRecord(key, record);
    this.hashSumChange = addHashes(this.hashSumChange, hash);
    void this.tables.entries.put(key, record);
    const { modRevision, lease, value } = entry;
    const written = new ReadEntry(entry.key, modRevision, lease, value, hash);
    this.cache.addWritten(written, before === undefined);
  }

  delete(before: StoredEntry): void {
    this.detachFromLease(before);
    this.subtractEntry(before);
    void this.tables.entries.remove(encodeKey(before.key));
    this.cache.delete(before.key);
  }

  hasLease(lease: LeaseId): boolean {
    return lease !== '' && this.tables.leases.doesExist(Buffer.from(lease));
  }

  putLease(lease: LeaseId, ttlMs: number): void {
    const key = Buffer.from(lease);
    const record = encodeLease(ttlMs);
    this.hashSumChange = addHashes(this.hashSumChange, hashRecord(key, record));
    void this.tables.leases.put(key, record);
  }

  deleteLease(lease: LeaseId): void {
    const key = Buffer.from(lease);
    this.subtractHash(this.tables.leases, key);
    void this.tables.leases.remove(key);
  }

  leasedKeys(lease: LeaseId): readonly string[] {
    const start = encodeLeasedKey(lease, '');
    const end = endOfPrefix(start) ?? start;
    return [...this.tables.leasedKeys.getKeys({ start, end })].map((key) =>
      key.toString('utf8', start.length),
    );
  }

  finish(
    transactions: readonly LoggedTransaction[],
    counters: Omit<StoreHead, 'compactedRevision'>,
  ): void {
    const { compactedRevision } = this.head();
    this.appendHistory(transactions);
    this.dropped = this.historyWindow.findSurplus(this.added);
    for (const segment of this.dropped) void this.tables.history.remove(encodeSegmentKey(segment));
    this.putHead({
      ...counters,
      compactedRevision: this.dropped.at(-1)?.last ?? compactedRevision,
    });
  }

  setInitialRevision(revision: Revision): void {
    this.putHead({ revision, compactedRevision: revision, leaseCount: 0 });
  }

  private putHead(head: StoreHead): void {
    const { hashSum } = readHead(this.tables);
    void this.tables.meta.put(
      HEAD_KEY,
      encodeHead({ ...head, hashSum: addHashes(hashSum, this.hashSumChange) }),
    );
  }

  /**
   * Subtracts the hash of an entry before the entry is replaced or deleted.
   * @param before - The result of {@link get}: no other write of the entry has followed.
   */
  private subtractEntry(before: StoredEntry): void {
    if (before instanceof ReadEntry)
      this.hashSumChange = addHashes(this.hashSumChange, -before.hash);
    else this.subtractHash(this.tables.entries, encodeKey(before.key));
  }

  /** Subtracts the hash of the stored record before the record is replaced or deleted. */
  private subtractHash(table: Table, key: Buffer): void {
    const record = table.get(key);
    if (record !== undefined)
      this.hashSumChange = addHashes(this.hashSumChange, -hashRecord(key, record));
  }

  /** Writes the transactions as segments of at least SEGMENT_BYTES, except the last. */
  private appendHistory(transactions: readonly LoggedTransaction[]): void {
    startRecord(segmentWriter);
    let first: LoggedTransaction | undefined;
    let changes = 0;
    for (const [index, transaction] of transactions.entries()) {
      first ??= transaction;
      changes += transaction.changes.length;
      encodeTransaction(segmentWriter, transaction);
      if (segmentWriter.byteLength < SEGMENT_BYTES && index < transactions.length - 1) continue;
      this.appendSegment({ first: first.revision, last: transaction.revision, changes });
      startRecord(segmentWriter);
      first = undefined;
      changes = 0;
    }
  }

  private appendSegment(segment: Omit<HistorySegment, 'bytes'>): void {
    const record = sealRecord(segmentWriter);
    void this.tables.history.put(encodeSegmentKey(segment), record);
    this.added.push({ ...segment, bytes: getSpace(record.length) });
  }

  /** Removes the key of `before` from its lease. */
  private detachFromLease(before: StoredEntry | undefined): void {
    if (before?.lease !== undefined)
      void this.tables.leasedKeys.remove(encodeLeasedKey(before.lease, before.key));
  }
}
