import type { LeaseId, Revision, StoreEntry } from './state-store.js';
import type { StorageFault } from './storage-fault.js';

/** An entry with what only engines keep of it. */
export interface StoredEntry extends Omit<StoreEntry, 'lease'> {
  /** The lease whose end deletes this key. */
  readonly lease: LeaseId | undefined;
}

/**
 * One change of one key as the history keeps it: what was there before, so that older revisions can
 * be shown, and after.
 */
export interface LoggedChange {
  readonly key: string;
  readonly before: StoredEntry | undefined;
  /** Undefined when the key was deleted. */
  readonly after: StoredEntry | undefined;
}

/** What one transaction changed, in the order of its operations; never empty. */
export interface LoggedTransaction {
  readonly revision: Revision;
  readonly changes: readonly LoggedChange[];
}

/** The counters of a store. */
export interface StoreHead {
  /** The newest committed revision. */
  readonly revision: Revision;
  /** Changes up to and including this revision are no longer in the history. */
  readonly compactedRevision: Revision;
  /** How many leases were ever made. */
  readonly leaseCount: number;
}

/**
 * A consistent view of what is committed; valid only during the synchronous call it was given to.
 */
export interface StorageReader {
  head(): StoreHead;
  get(key: string): StoredEntry | undefined;
  /** Entries whose key starts with `prefix` and comes after `after`, in byte order. */
  scan(prefix: string, after: string | undefined): Iterable<StoredEntry>;
  /** The retained transactions with a greater revision than `after`, oldest first. */
  history(after: Revision): Iterable<LoggedTransaction>;
}

/** What one group commit writes. Reads see its own writes. */
export interface StorageWriter {
  head(): StoreHead;
  get(key: string): StoredEntry | undefined;
  /** @param before - What {@link StorageWriter.get} returns for this key. */
  put(entry: StoredEntry, before: StoredEntry | undefined): void;
  delete(before: StoredEntry): void;
  hasLease(lease: LeaseId): boolean;
  putLease(lease: LeaseId, ttlMs: number): void;
  deleteLease(lease: LeaseId): void;
  /** Keys of the entries with this lease, in byte order. */
  leasedKeys(lease: LeaseId): readonly string[];
  /**
   * Adds to the history, drops what exceeds its limit, and writes the counters. The last call, made
   * once if anything changed.
   */
  finish(
    transactions: readonly LoggedTransaction[],
    counters: Omit<StoreHead, 'compactedRevision'>,
  ): void;
  /**
   * Makes a storage that holds nothing but restored entries begin at a revision, without history
   * before it. In place of `finish`.
   */
  beginAt(revision: Revision): void;
}

/**
 * What an engine has to bring; everything else of a store is built on it by `createEngineStore`.
 * There is one writer at a time, and no write is begun before the one before has settled.
 */
export interface Storage {
  /** Runs `view` at once. */
  read<T>(view: (reader: StorageReader) => T): T;
  /**
   * Runs `action` and commits what it wrote. Resolves once that is durable and {@link Storage.read}
   * shows it. Nothing of it remains when `action` throws.
   * @throws kind `exhausted` when there is no room and nothing was committed. After any other
   *   rejection it is unknown what was committed, and the store takes itself out of service.
   */
  write<T>(action: (writer: StorageWriter) => T): Promise<T>;
  /** The leases as they were committed, with their time in milliseconds. */
  leases(): Iterable<readonly [LeaseId, number]>;
  /**
   * Checks whether the files of this storage are still its own. Called before and after each write,
   * and at intervals, until it returns a fault. A storage without files does without.
   */
  fault?(): StorageFault | undefined;
  /** Called once, when no write is under way. */
  close(): Promise<void>;
}
