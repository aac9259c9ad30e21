import { CloudlessError, type StopSignal } from '@cloudless/base';

/**
 * The store's commit counter: grows by one with each committed transaction that changes something.
 * Order, never time.
 */
export type Revision = bigint;

/** A key with its value, as of one revision. */
export interface StoreEntry {
  readonly key: string;
  /** Not to be modified: readers may share it. */
  readonly value: Uint8Array;
  /** Revision of the transaction that wrote this value; the base of every conditional write. */
  readonly modRevision: Revision;
  /** The lease whose end deletes this key; absent: it stays. */
  readonly lease?: LeaseId;
}

/**
 * A condition on one key: its mod revision is this, or it does not exist. There is no condition
 * over a prefix.
 */
export interface Compare {
  readonly key: string;
  readonly is: Revision | 'absent';
}

/**
 * One write of a transaction. A key may be written once in a transaction. Deleting what is absent
 * is no error and no change. A put without a lease takes the key off the lease it had; a put of the
 * same value is a change.
 */
export type Operation =
  | { readonly put: string; readonly value: Uint8Array; readonly lease?: LeaseId }
  | { readonly delete: string };

/** What a committed transaction returns. */
export interface Committed {
  /**
   * The revision all writes of this transaction carry. A transaction that changes nothing returns
   * the current one.
   */
  readonly revision: Revision;
}

/** Which entries to read: those whose key starts with `prefix`, in byte order of the UTF-8 key. */
export interface RangeRequest {
  readonly prefix: string;
  /** Only keys after this one: where the last page ended. */
  readonly after?: string;
  /** At most this many entries, 1 or more. Default 1 000. */
  readonly limit?: number;
  /** Read as of this revision, so that all pages show one state. Default: the newest. */
  readonly revision?: Revision;
}

/** Entries as of one revision. */
export interface RangePage {
  readonly entries: readonly StoreEntry[];
  /** The revision this page shows; pass it to the next call. */
  readonly revision: Revision;
  /** Pass it as `after` for the next page; absent on the last. */
  readonly next?: string;
}

/** One change of one key. */
export type Change =
  | { readonly kind: 'put'; readonly entry: StoreEntry }
  | { readonly kind: 'delete'; readonly key: string; readonly modRevision: Revision };

/**
 * All changes under the watched prefix that one transaction made, in the order of its operations.
 * Never split over two batches.
 */
export interface ChangeBatch {
  readonly revision: Revision;
  readonly changes: readonly Change[];
}

/** Identifies a lease; survives restarts of the store. */
export type LeaseId = string;

/**
 * An ordered byte store after etcd's model. Keys are non-empty UTF-8 text (no lone surrogates) of
 * at most {@link MAX_KEY_BYTES} bytes. The history that {@link StateStore.range} and {@link
 * StateStore.watch} reach back to holds at least the newest `historyLimit` changes and, once older
 * ones were dropped in batches, about a quarter more; fewer when they take more than
 * `historyBytes`. Operations are strict serializable. A promise that rejects with kind
 * `unavailable` or `deadline` leaves it unknown whether the write was committed; every other
 * rejection means it was not.
 */
export interface StateStore {
  /** The entry as of the newest revision, or undefined. */
  get(key: string): Promise<StoreEntry | undefined>;
  /**
   * @throws kind `compacted` when `revision` is older than the retained history, `invalid` when it
   * is in the future.
   */
  range(request: RangeRequest): Promise<RangePage>;
  /**
   * Commits all operations if every compare holds, else none. Resolves once the commit is durable.
   * @throws {@link RevisionConflictError} when a compare does not hold; kind `invalid` for more
   *   than {@link MAX_TXN_OPERATIONS} compares or operations, more than {@link MAX_TXN_BYTES} of
   *   keys and values, a key written twice, an empty or too long key; `notFound` for an unknown
   *   lease; `exhausted` when the disk is full.
   */
  txn(compares: readonly Compare[], operations: readonly Operation[]): Promise<Committed>;
  /**
   * Every change under `prefix` with a revision greater than `after`, in order, without gap or
   * repeat, then what comes. Ends without error when `signal` is aborted or the store is closed.
   * Nothing is buffered for a slow reader: it reads the retained history at its own pace. Errors
   * are thrown by the first read, not by this call.
   * @throws kind `compacted` when changes after `after` are no longer retained, or this reader fell
   *   too far behind; `invalid` when `after` is in the future.
   */
  watch(request: {
    readonly prefix: string;
    readonly after: Revision;
    readonly signal?: StopSignal;
  }): AsyncIterable<ChangeBatch>;
  /** The newest committed revision; 0 for an empty store. */
  revision(): Promise<Revision>;
  /**
   * Makes a lease that ends `ttlMs` (1 or more) after its last renewal, deleting its keys in one
   * transaction. After a restart of the store each lease starts with its full time again. An id is
   * never reused.
   */
  grantLease(ttlMs: number): Promise<LeaseId>;
  /** Renews from now. @throws kind `notFound` when it has ended. */
  keepAlive(lease: LeaseId): Promise<void>;
  /** Ends it at once. Ending one that has ended is no error. */
  revokeLease(lease: LeaseId): Promise<void>;
  /**
   * Ends watches, waits for writes under way, gives up the lock. Calls after it reject with kind
   * `unavailable`.
   */
  close(): Promise<void>;
}

/** Longest key in bytes: LMDB's default limit is 511, our layout needs far less. */
export const MAX_KEY_BYTES = 480;
/** etcd's default for operations in a transaction is 128. */
export const MAX_TXN_OPERATIONS = 100;
/** etcd's default request limit is 1.5 MiB. */
export const MAX_TXN_BYTES = 1024 * 1024;

/** Something a plan had read changed before the plan was committed. Read again, plan again. */
export class RevisionConflictError extends CloudlessError {
  /**
   * @param scope - The key whose compare did not hold.
   * @param since - The revision the caller had read, or absent.
   * @param changedAt - The key's revision now, or absent.
   */
  constructor(
    readonly scope: string,
    readonly since: Revision | 'absent',
    readonly changedAt: Revision | 'absent',
  ) {
    super('conflict', `${scope} was read at revision ${since} and is now at ${changedAt}`);
  }
}
