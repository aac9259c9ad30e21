import type { LeaseId, Revision, StoreEntry } from '../state-store.js';
import type { StorageFault } from './storage-fault.js';

/** An entry in the form that engines use. */
export interface StoredEntry extends Omit<StoreEntry, 'lease'> {
  /** The lease at whose end this key is deleted. */
  readonly lease: LeaseId | undefined;
}

/**
 * One change of one key in the history, with the entry before (for reads of older revisions) and
 * after.
 */
export interface LoggedChange {
  readonly key: string;
  readonly before: StoredEntry | undefined;
  /** Undefined when the key was deleted. */
  readonly after: StoredEntry | undefined;
}

/** The changes of one transaction, in the order of its operations; never empty. */
export interface LoggedTransaction {
  readonly revision: Revision;
  readonly changes: readonly LoggedChange[];
}

export interface StoreHead {
  /** The newest committed revision. */
  readonly revision: Revision;
  /** Changes up to and including this revision are no longer in the history. */
  readonly compactedRevision: Revision;
  /** Number of leases ever created. */
  readonly leaseCount: number;
}

/**
 * A consistent view of the committed state. Valid only during the synchronous call that receives
 * it.
 */
export interface StorageReader {
  head(): StoreHead;
  get(key: string): StoredEntry | undefined;
  /** Entries whose key starts with `prefix` and sorts after `after`, in byte order. */
  scan(prefix: string, after: string | undefined): Iterable<StoredEntry>;
  /** The retained transactions with a revision above `after`, oldest first. */
  history(after: Revision): Iterable<LoggedTransaction>;
}

/** Writes of one group commit. Reads see the writes before them. */
export interface StorageWriter {
  head(): StoreHead;
  get(key: string): StoredEntry | undefined;
  /** @param before - The result of {@link StorageWriter.get} for this key. */
  put(entry: StoredEntry, before: StoredEntry | undefined): void;
  delete(before: StoredEntry): void;
  hasLease(lease: LeaseId): boolean;
  putLease(lease: LeaseId, ttlMs: number): void;
  deleteLease(lease: LeaseId): void;
  /** Keys of the entries with this lease, in byte order. */
  leasedKeys(lease: LeaseId): readonly string[];
  /**
   * Appends to the history, drops what exceeds its limit, and writes the counters. Must be the last
   * call, and is made once if anything changed.
   */
  finish(
    transactions: readonly LoggedTransaction[],
    counters: Omit<StoreHead, 'compactedRevision'>,
  ): void;
  /**
   * Sets the revision of a storage that has only restored entries and no history. Used instead of
   * `finish`.
   */
  setInitialRevision(revision: Revision): void;
}

/**
 * Interface that an engine implements; `createEngineStore` builds the store on it. There is one
 * writer at a time: no write starts before the previous write has settled.
 */
export interface Storage {
  /** Runs `view` synchronously. */
  read<T>(view: (reader: StorageReader) => T): T;
  /**
   * Runs `action` and commits its writes. Resolves when they are durable and visible to {@link
   * Storage.read}. Leaves no trace when `action` throws.
   * @throws kind `exhausted` when the disk is full and nothing was committed. After any other
   *   rejection it is unknown whether the writes were committed, and the store goes out of service.
   */
  write<T>(action: (writer: StorageWriter) => T): Promise<T>;
  /** The committed leases with their TTL in milliseconds. */
  leases(): Iterable<readonly [LeaseId, number]>;
  /**
   * Checks whether the files still belong to this storage. Runs before and after each write, and at
   * intervals, until it returns a fault. Absent in a storage without files.
   */
  fault?(): StorageFault | undefined;
  /** Called once, when no write is running. */
  close(): Promise<void>;
}
