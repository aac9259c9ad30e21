import type { ChangeBatch, LeaseId, Revision, StoreEntry } from '../state-store.js';
import type { StorageFault } from './storage-fault.js';

/** An entry in the form that engines use: `lease` may be undefined. */
export interface StoredEntry extends Omit<StoreEntry, 'lease'> {
  /** The key is deleted when this lease ends. Absent or undefined: the key has no lease. */
  readonly lease?: LeaseId | undefined;
}

/**
 * A transaction in the history: its changes, as watches get them and in the order of its operations,
 * and the entries before the changes, for reads of older revisions. Has at least one change.
 */
export interface LoggedTransaction extends ChangeBatch {
  /** The entry before each change, at the index of the change; undefined: the change created the key. */
  readonly entriesBefore: readonly (StoredEntry | undefined)[];
}

/** Counters of a storage. */
export interface StoreHead {
  /** The newest committed revision. */
  readonly revision: Revision;
  /** Changes up to and including this revision are no longer in the history. */
  readonly compactedRevision: Revision;
  /** Number of leases ever created. */
  readonly leaseCount: number;
}

/**
 * A consistent view of the committed state. Valid only during the synchronous callback of
 * {@link Storage.read}.
 */
export interface StorageReader {
  head(): StoreHead;
  get(key: string): StoredEntry | undefined;
  /**
   * Entries whose key starts with `prefix` and sorts after `after`, in byte order. Undefined
   * `after`: from the first entry.
   */
  scan(prefix: string, after: string | undefined): Iterable<StoredEntry>;
  /** The retained transactions with a revision above `after`, oldest first. */
  history(after: Revision): Iterable<LoggedTransaction>;
}

/** Writes and reads of one group commit. A read returns what earlier writes of the group wrote. */
export interface StorageWriter {
  head(): StoreHead;
  /**
   * Returns the entry of a key; undefined when the key has no entry.
   * @param isExpected - Whether the caller expects an entry. Only a hint where to look first: the
   *   result does not depend on the hint. Default true.
   */
  get(key: string, isExpected?: boolean): StoredEntry | undefined;
  /** @param before - The result of {@link StorageWriter.get} for this key. */
  put(entry: StoredEntry, before: StoredEntry | undefined): void;
  /** @param before - The result of {@link StorageWriter.get}; its key is deleted. */
  delete(before: StoredEntry): void;
  hasLease(lease: LeaseId): boolean;
  putLease(lease: LeaseId, ttlMs: number): void;
  deleteLease(lease: LeaseId): void;
  /** Keys of the entries with this lease, in byte order. */
  leasedKeys(lease: LeaseId): readonly string[];
  /**
   * Appends to the history, drops the oldest history above the limits, and writes the counters. The
   * store calls this once, as the last call of a group that changed something.
   */
  finish(
    transactions: readonly LoggedTransaction[],
    counters: Omit<StoreHead, 'compactedRevision'>,
  ): void;
  /**
   * Sets the revision of a storage with restored entries and no history. An import calls this
   * instead of `finish`.
   */
  setInitialRevision(revision: Revision): void;
}

/**
 * Interface that an engine implements, and on which `createEngineStore` builds a store. The store
 * starts no write before the previous write has settled.
 */
export interface Storage {
  /** Calls `view` synchronously and returns its result. */
  read<T>(view: (reader: StorageReader) => T): T;
  /**
   * Calls `action` and commits its writes. Resolves when the writes are durable and visible to
   * {@link Storage.read}. Commits nothing when `action` throws. Calls `action` as late as it can,
   * because commands that arrive before the call are part of the write. May reject without calling
   * `action`.
   * @throws kind `exhausted` when the disk is full and nothing was committed. After any other
   *   rejection it is unknown whether the writes were committed, and the store goes out of service.
   */
  write<T>(action: (writer: StorageWriter) => T): Promise<T>;
  /** The committed leases with their TTL in milliseconds. */
  leases(): Iterable<readonly [LeaseId, number]>;
  /**
   * Returns a fault when the storage has lost its files. The store calls this method before and
   * after each write, and at intervals, until the first fault. Absent in a storage without files.
   */
  fault?(): StorageFault | undefined;
  /** The store calls this method once, while no write is running. */
  close(): Promise<void>;
}
