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
import { ByteWriter } from './byte-writer.js';
import {
  addProofs,
  encodeEntry,
  encodeHead,
  proofOf,
  roomOf,
  encodeLease,
  encodeSegmentKey,
  encodeTransaction,
  sealRecord,
  startRecord,
} from './records.js';
import { leasedKey } from './leased-key.js';
import { HEAD_KEY, readEntry, readHead } from './table-reads.js';
import { endOfPrefix, type Table, type Tables } from './tables.js';

/**
 * Transactions of one group share history records up to this size. LMDB takes long to allocate
 * space for larger records.
 */
const SEGMENT_BYTES = 64 * 1024;

const EMPTY = Buffer.alloc(0);
/** Reused for every segment: LMDB copies the bytes on put. */
const segmentWriter = new ByteWriter(2 * SEGMENT_BYTES);

/** Writes of one group commit, within one LMDB transaction. */
export class LmdbWriter implements StorageWriter {
  private added: HistorySegment[] = [];
  private dropped: readonly HistorySegment[] = [];
  /** Change of the sum of all record hashes. */
  private proof = 0;

  constructor(
    private readonly tables: Tables,
    private readonly window: HistoryWindow,
  ) {}

  /** Must be called once the writes are durable. */
  committed(): void {
    this.window.advance(this.added, this.dropped);
  }

  head(): StoreHead {
    return readHead(this.tables);
  }

  get(key: string): StoredEntry | undefined {
    return readEntry(this.tables, key);
  }

  put(entry: StoredEntry, before: StoredEntry | undefined): void {
    if (before?.lease !== entry.lease) {
      this.detach(before);
      if (entry.lease !== undefined)
        void this.tables.leasedKeys.put(leasedKey(entry.lease, entry.key), EMPTY);
    }
    const key = Buffer.from(entry.key);
    if (before !== undefined) this.disprove(this.tables.entries, key);
    const record = encodeEntry(entry);
    this.proof = addProofs(this.proof, proofOf(key, record));
    void this.tables.entries.put(key, record);
  }

  delete(before: StoredEntry): void {
    this.detach(before);
    const key = Buffer.from(before.key);
    this.disprove(this.tables.entries, key);
    void this.tables.entries.remove(key);
  }

  hasLease(lease: LeaseId): boolean {
    return lease !== '' && this.tables.leases.doesExist(Buffer.from(lease));
  }

  putLease(lease: LeaseId, ttlMs: number): void {
    const key = Buffer.from(lease);
    const record = encodeLease(ttlMs);
    this.proof = addProofs(this.proof, proofOf(key, record));
    void this.tables.leases.put(key, record);
  }

  deleteLease(lease: LeaseId): void {
    const key = Buffer.from(lease);
    this.disprove(this.tables.leases, key);
    void this.tables.leases.remove(key);
  }

  leasedKeys(lease: LeaseId): readonly string[] {
    const start = leasedKey(lease, '');
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
    this.dropped = this.window.surplusWith(this.added);
    for (const segment of this.dropped) void this.tables.history.remove(encodeSegmentKey(segment));
    this.putHead({
      ...counters,
      compactedRevision: this.dropped.at(-1)?.last ?? compactedRevision,
    });
  }

  beginAt(revision: Revision): void {
    this.putHead({ revision, compactedRevision: revision, leaseCount: 0 });
  }

  private putHead(head: StoreHead): void {
    const { proof } = readHead(this.tables);
    void this.tables.meta.put(
      HEAD_KEY,
      encodeHead({ ...head, proof: addProofs(proof, this.proof) }),
    );
  }

  private disprove(table: Table, key: Buffer): void {
    const record = table.get(key);
    if (record !== undefined) this.proof = addProofs(this.proof, -proofOf(key, record));
  }

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
    this.added.push({ ...segment, bytes: roomOf(record.length) });
  }

  private detach(before: StoredEntry | undefined): void {
    if (before?.lease !== undefined)
      void this.tables.leasedKeys.remove(leasedKey(before.lease, before.key));
  }
}
