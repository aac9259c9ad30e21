import { CloudlessError, type StopSignal } from '@cloudless/base';

/**
 * Commit counter of the store. Grows by one with each commit that changes something. A commit has one
 * transaction or, on engines that group, several transactions that are independent of each other:
 * none writes a key that another one compares or writes. An order, never a time.
 */
export type Revision = bigint;

/** A key with its value, as of one revision. */
export interface StoreEntry {
  readonly key: string;
  /** Do not modify: the store may hand the same bytes to several readers. */
  readonly value: Uint8Array;
  /** Revision of the transaction that wrote this value; the base of every conditional write. */
  readonly modRevision: Revision;
  /** The store deletes the key when this lease ends. Absent: the key has no lease. */
  readonly lease?: LeaseId;
}

/**
 * Condition on one key: its mod revision equals `is`, or the key does not exist (`absent`). There
 * are no conditions on prefixes.
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

/** Result of a transaction. */
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
  /** Only keys that sort after this key: `next` of the previous page. */
  readonly after?: string;
  /** Limit of entries, 1 or more. Default 1 000. */
  readonly limit?: number;
  /** Revision to read, so that all pages show the same state. Default: the newest. */
  readonly revision?: Revision;
}

export interface RangePage {
  readonly entries: readonly StoreEntry[];
  /** Revision of the page; pass this revision to the call for the next page. */
  readonly revision: Revision;
  /** Pass as `after` to get the next page. Absent on the last page. */
  readonly next?: string;
}

/** One change of one key. */
export type Change =
  | { readonly kind: 'put'; readonly entry: StoreEntry }
  | { readonly kind: 'delete'; readonly key: string; readonly modRevision: Revision };

/**
 * All changes that one commit made under the watched prefix; those of one transaction in the order of
 * its operations. A watch never splits a transaction. A watch of all keys, with prefix `''`, may
 * deliver a batch without changes, for a revision that changed nothing in the store.
 */
export interface ChangeBatch {
  readonly revision: Revision;
  readonly changes: readonly Change[];
}

/** Id of a lease. Stays valid when the store is opened again. */
export type LeaseId = string;

/**
 * An ordered byte store after etcd's model. Keys are non-empty UTF-8 text (no lone surrogates) of
 * at most {@link MAX_KEY_BYTES} bytes. {@link StateStore.range} and {@link StateStore.watch} reach
 * back over at least the newest `historyLimit` changes (fewer when these take more than
 * `historyBytes`), and up to a quarter more, because engines drop older changes in batches.
 * Operations are strictly serializable. A write that rejects with kind `unavailable` or `deadline`
 * may have been committed; a write that rejects with another kind was not committed.
 * @example
 * const { revision } = await store.txn([{ key: 'a', is: 'absent' }], [{ put: 'a', value }]);
 * for await (const batch of store.watch({ prefix: '', after: revision })) handle(batch);
 */
export interface StateStore {
  /** Returns the entry at the newest revision, or undefined. */
  get(key: string): Promise<StoreEntry | undefined>;
  /**
   * Reads one page of entries.
   * @throws kind `compacted` when `revision` is older than the retained history; `invalid` when
   *   `revision` is in the future, `limit` is not an integer of 1 or more, or a text is not valid
   *   UTF-8.
   */
  range(request: RangeRequest): Promise<RangePage>;
  /**
   * Commits all operations if every compare holds, otherwise none. Resolves when the commit is
   * durable. The store keeps the arguments without a copy, and gives the same bytes to watches: do
   * not change them after the call.
   * @throws {@link RevisionConflictError} when a compare does not hold; kind `invalid` for more
   *   than {@link MAX_TXN_OPERATIONS} compares or operations, more than {@link MAX_TXN_BYTES} of
   *   keys and values, a key written twice, an empty or too long key; `notFound` for an unknown
   *   lease; `exhausted` when the disk is full; `unavailable` when the store is closed or out of
   *   service.
   */
  txn(compares: readonly Compare[], operations: readonly Operation[]): Promise<Committed>;
  /**
   * Delivers every change under `prefix` after revision `after`, in order, without gaps or
   * duplicates, and then new changes as they are committed. Ends without error when `signal` is
   * aborted or the store is closed. Buffers nothing for a slow reader: each reader reads the
   * retained history at its own pace. The call itself never throws; a read of the iterator does.
   * @throws kind `compacted` when changes after `after` are no longer retained, or the reader fell
   *   too far behind; `invalid` when `after` is in the future; `unavailable` when the store was
   *   closed before the watch started or is out of service.
   */
  watch(request: {
    readonly prefix: string;
    readonly after: Revision;
    readonly signal?: StopSignal;
  }): AsyncIterable<ChangeBatch>;
  /**
   * Returns the newest committed revision; 0 for an empty store. A watch of all keys, with prefix
   * `''`, reaches that revision or a later one, whatever changed at that revision.
   */
  revision(): Promise<Revision>;
  /**
   * Creates a lease that ends `ttlMs` milliseconds (1 or more) after its last renewal. The store
   * then deletes the keys of the lease in one transaction. When the store is opened again, each
   * lease starts with its full time. Ids are never reused. A lease on the clock of a server may last
   * longer: etcd rounds the time up to seconds, at least 2 s, and starts each lease with its full
   * time after an election of its own leader.
   */
  grantLease(ttlMs: number): Promise<LeaseId>;
  /**
   * Renews a lease: it now ends one full TTL from now.
   * @throws kind `notFound` when the lease does not exist or has ended.
   */
  keepAlive(lease: LeaseId): Promise<void>;
  /** Ends a lease and deletes its keys at once. Has no effect on a lease that has ended. */
  revokeLease(lease: LeaseId): Promise<void>;
  /**
   * Ends watches, waits for running writes, and releases the files of the engine and their lock.
   * Later calls of other methods reject with kind `unavailable`; a second `close` has no effect.
   */
  close(): Promise<void>;
}

/** Longest key in UTF-8 bytes. LMDB allows 511; the keys of Cloudless are far shorter. */
export const MAX_KEY_BYTES = 480;
/** Most compares, and most operations, in one transaction. Below etcd's default of 128. */
export const MAX_TXN_OPERATIONS = 100;
/** Most bytes of keys and values in one transaction. Below etcd's default limit of 1.5 MiB. */
export const MAX_TXN_BYTES = 1024 * 1024;

/** A key changed after the caller had read it. Read again and plan again. */
export class RevisionConflictError extends CloudlessError {
  /**
   * @param scope - The key whose compare failed.
   * @param since - Mod revision of the key that the caller expected, or `absent`.
   * @param changedAt - Current mod revision of the key, or `absent`.
   */
  constructor(
    readonly scope: string,
    readonly since: Revision | 'absent',
    readonly changedAt: Revision | 'absent',
  ) {
    super('conflict', `${scope} was read at revision ${since} and is now at ${changedAt}`);
  }
}
