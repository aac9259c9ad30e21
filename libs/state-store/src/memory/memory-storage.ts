import { HistoryWindow, type HistorySegment } from '../engine/history-window.js';
import type { LeaseId, Revision } from '../state-store.js';
import type {
  LoggedTransaction,
  Storage,
  StorageReader,
  StorageWriter,
  StoredEntry,
  StoreHead,
} from '../engine/storage.js';
import { compareKeys } from '../utf8.js';
import { DEFAULT_HISTORY_BYTES, getChangedKey } from '../validate.js';
import { SortedEntries } from './sorted-entries.js';

interface Lease {
  readonly ttlMs: number;
  readonly keys: Set<string>;
}

/** Storage of the in-memory engine. Writes are visible at once and cannot fail. */
export class MemoryStorage implements Storage, StorageReader, StorageWriter {
  private readonly entries = new SortedEntries();
  private readonly leasesById = new Map<LeaseId, Lease>();
  private readonly historyWindow: HistoryWindow;
  private log: LoggedTransaction[] = [];
  private counters: StoreHead = { revision: 0n, compactedRevision: 0n, leaseCount: 0 };

  /**
   * @param historyLimit - Newest changes to retain.
   * @param historyBytes - Bytes of retained changes beyond which fewer are retained.
   */
  constructor(historyLimit: number, historyBytes = DEFAULT_HISTORY_BYTES) {
    this.historyWindow = new HistoryWindow({ changes: historyLimit, bytes: historyBytes });
  }

  read<T>(view: (reader: StorageReader) => T): T {
    return view(this);
  }

  async write<T>(action: (writer: StorageWriter) => T): Promise<T> {
    return action(this);
  }

  *leases(): Iterable<readonly [LeaseId, number]> {
    for (const [lease, { ttlMs }] of this.leasesById) yield [lease, ttlMs];
  }

  async close(): Promise<void> {
    this.log = [];
  }

  head(): StoreHead {
    return this.counters;
  }

  get(key: string): StoredEntry | undefined {
    return copyEntry(this.entries.get(key));
  }

  *scan(prefix: string, after: string | undefined): Iterable<StoredEntry> {
    for (const entry of this.entries.scan(prefix, after)) yield copyEntry(entry);
  }

  /** The log has every revision after the compacted revision, so a revision gives its index. */
  *history(after: Revision): Iterable<LoggedTransaction> {
    const firstIndex = Math.max(0, Number(after - this.counters.compactedRevision));
    for (let index = firstIndex; index < this.log.length; index += 1) {
      const transaction = this.log[index];
      if (transaction !== undefined) yield transaction;
    }
  }

  put(entry: StoredEntry, before: StoredEntry | undefined): void {
    this.detachFromLease(before);
    if (entry.lease !== undefined) this.leasesById.get(entry.lease)?.keys.add(entry.key);
    this.entries.put(entry);
  }

  delete(before: StoredEntry): void {
    this.detachFromLease(before);
    this.entries.delete(before.key);
  }

  hasLease(lease: LeaseId): boolean {
    return this.leasesById.has(lease);
  }

  putLease(lease: LeaseId, ttlMs: number): void {
    this.leasesById.set(lease, { ttlMs, keys: new Set() });
  }

  deleteLease(lease: LeaseId): void {
    this.leasesById.delete(lease);
  }

  leasedKeys(lease: LeaseId): readonly string[] {
    return [...(this.leasesById.get(lease)?.keys ?? [])].sort(compareKeys);
  }

  finish(
    transactions: readonly LoggedTransaction[],
    counters: Omit<StoreHead, 'compactedRevision'>,
  ): void {
    const added = transactions.map(toSegment);
    const dropped = this.historyWindow.findSurplus(added);
    this.historyWindow.advance(added, dropped);
    for (const transaction of transactions) this.log.push(transaction);
    if (dropped.length > 0) this.log = this.log.slice(dropped.length);
    this.counters = {
      ...counters,
      compactedRevision: dropped.at(-1)?.last ?? this.counters.compactedRevision,
    };
  }

  setInitialRevision(revision: Revision): void {
    this.counters = { revision, compactedRevision: revision, leaseCount: 0 };
  }

  /** Removes the key of `before` from the keys of its lease. */
  private detachFromLease(before: StoredEntry | undefined): void {
    if (before?.lease !== undefined) this.leasesById.get(before.lease)?.keys.delete(before.key);
  }
}

function toSegment({ revision, changes, entriesBefore }: LoggedTransaction): HistorySegment {
  const bytes = changes.reduce(
    (sum, change, index) =>
      sum +
      getChangedKey(change).length +
      countValueBytes(entriesBefore[index]) +
      countValueBytes(change.kind === 'put' ? change.entry : undefined),
    0,
  );
  return { first: revision, last: revision, changes: changes.length, bytes };
}

function countValueBytes(entry: StoredEntry | undefined): number {
  return entry?.value.byteLength ?? 0;
}

function copyEntry<Entry extends StoredEntry | undefined>(entry: Entry): Entry {
  return entry === undefined ? entry : { ...entry, value: new Uint8Array(entry.value) };
}
