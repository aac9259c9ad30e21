import { CloudlessError, type StopSignal } from '@cloudless/base';

/**
 * Commit counter of the store. Grows by one with each committed transaction that changes something.
 * An order, never a time.
 */
export type Revision = bigint;

/** A key with its value, as of one revision. */
export interface StoreEntry {
  readonly key: string;
  /** Read-only: readers may share it. */
  readonly value: Uint8Array;
  /** Revision of the transaction that wrote this value; the base of every conditional write. */
  readonly modRevision: Revision;
  /** The lease at whose end this key is deleted. Absent: the key stays. */
  readonly lease?: LeaseId;
}

/**
 * Condition on one key: its mod revision equals `is`, or the key does not exist. There are no
 * conditions on prefixes.
 */
export interface Compare {
  readonly key: string;
  readonly is: Revision | 'absent';
}

/**
 * One write of a transaction. Each key may occur once. Deleting an absent key is neither an error
 * nor a change. A put without a lease removes the key from its lease; a put of the same value is a
 * change.
 */
export type Operation =
  | { readonly put: string; readonly value: Uint8Array; readonly lease?: LeaseId }
  | { readonly delete: string };

export interface Committed {
  /**
   * Revision of all writes of this transaction; the current revision when the transaction changes
   * nothing.
   */
  readonly revision: Revision;
}

/** Selects the entries whose key starts with `prefix`, in byte order of the UTF-8 keys. */
export interface RangeRequest {
  readonly prefix: string;
  /** Only keys after this one: `next` of the previous page. */
  readonly after?: string;
  /** Limit of entries, 1 or more. Default 1 000. */
  readonly limit?: number;
  /** Read at this revision, so that all pages have one state. Default: the newest. */
  readonly revision?: Revision;
}

export interface RangePage {
  readonly entries: readonly StoreEntry[];
  /** Revision of the page; pass it to the next call. */
  readonly revision: Revision;
  /** `after` for the next page; absent on the last page. */
  readonly next?: string;
}

/** One change of one key. */
export type Change =
  | { readonly kind: 'put'; readonly entry: StoreEntry }
  | { readonly kind: 'delete'; readonly key: string; readonly modRevision: Revision };

/**
 * All changes of one transaction under the watched prefix, in the order of its operations. A
 * transaction is never split.
 */
export interface ChangeBatch {
  readonly revision: Revision;
  readonly changes: readonly Change[];
}

/** Id of a lease; stays valid across restarts of the store. */
export type LeaseId = string;

/**
 * An ordered byte store after etcd's model. Keys are non-empty UTF-8 text (no lone surrogates) of
 * at most {@link MAX_KEY_BYTES} bytes. {@link StateStore.range} and {@link StateStore.watch} reach
 * back over at least the newest `historyLimit` changes and, because older changes are dropped in
 * batches, up to a quarter more; over fewer when they take more than `historyBytes`. Operations are
 * strictly serializable. When a promise rejects with kind `unavailable` or `deadline`, it is
 * unknown whether the write was committed; after every other rejection it was not.
 * @example
 * const { revision } = await store.txn([{ key: 'a', is: 'absent' }], [{ put: 'a', value }]);
 * for await (const batch of store.watch({ prefix: '', after: revision })) handle(batch);
 */
export interface StateStore {
  /** Returns the entry at the newest revision, or undefined. */
  get(key: string): Promise<StoreEntry | undefined>;
  /**
   * Reads one page of entries.
   * @throws kind `compacted` when `revision` is older than the retained history, `invalid` when it
   *   is in the future.
   */
  range(request: RangeRequest): Promise<RangePage>;
  /**
   * Commits all operations if every compare holds, otherwise none. Resolves when the commit is
   * durable.
   * @throws {@link RevisionConflictError} when a compare does not hold; kind `invalid` for more
   *   than {@link MAX_TXN_OPERATIONS} compares or operations, more than {@link MAX_TXN_BYTES} of
   *   keys and values, a key written twice, an empty or too long key; `notFound` for an unknown
   *   lease; `exhausted` when the disk is full.
   */
  txn(compares: readonly Compare[], operations: readonly Operation[]): Promise<Committed>;
  /**
   * Delivers every change under `prefix` after revision `after`, in order, without gaps or
   * duplicates, and then new changes as they are committed. Ends without error when `signal` is
   * aborted or the store is closed. Buffers nothing for a slow reader: the reader reads the
   * retained history at its own pace. Errors are thrown by the first read, not by this call.
   * @throws kind `compacted` when changes after `after` are no longer retained, or the reader fell
   *   too far behind; `invalid` when `after` is in the future.
   */
  watch(request: {
    readonly prefix: string;
    readonly after: Revision;
    readonly signal?: StopSignal;
  }): AsyncIterable<ChangeBatch>;
  /** Returns the newest committed revision; 0 for an empty store. */
  revision(): Promise<Revision>;
  /**
   * Creates a lease that ends `ttlMs` (1 or more) after its last renewal; its keys are then deleted
   * in one transaction. After a restart of the store each lease starts with its full time again.
   * Ids are never reused.
   */
  grantLease(ttlMs: number): Promise<LeaseId>;
  /** Renews a lease from now. @throws kind `notFound` when it has ended. */
  keepAlive(lease: LeaseId): Promise<void>;
  /** Ends a lease at once. Has no effect on a lease that has ended. */
  revokeLease(lease: LeaseId): Promise<void>;
  /**
   * Ends watches, waits for running writes, and releases the lock. Later calls of other methods
   * reject with kind `unavailable`.
   */
  close(): Promise<void>;
}

/** Longest key in bytes. LMDB's default limit is 511; the layout of Cloudless needs far less. */
export const MAX_KEY_BYTES = 480;
/** etcd's default for operations in a transaction is 128. */
export const MAX_TXN_OPERATIONS = 100;
/** etcd's default request limit is 1.5 MiB. */
export const MAX_TXN_BYTES = 1024 * 1024;

/** A key changed after the caller had read it. Read again and plan again. */
export class RevisionConflictError extends CloudlessError {
  /**
   * @param scope - The key whose compare failed.
   * @param since - Its mod revision as the caller had read it, or absent.
   * @param changedAt - Its current mod revision, or absent.
   */
  constructor(
    readonly scope: string,
    readonly since: Revision | 'absent',
    readonly changedAt: Revision | 'absent',
  ) {
    super('conflict', `${scope} was read at revision ${since} and is now at ${changedAt}`);
  }
}
