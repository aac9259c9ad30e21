import { randomBytes } from 'node:crypto';
import { setMaxListeners } from 'node:events';
import {
  CloudlessError,
  errorKindOf,
  silentLog,
  sleep,
  type Clock,
  type Log,
} from '@cloudless/base';
import { systemClock } from '@cloudless/app-kit';
import {
  checkHistoryLimit,
  checkKey,
  checkPrefix,
  checkRange,
  checkTransaction,
  checkTtl,
  DEFAULT_HISTORY_BYTES,
  DEFAULT_HISTORY_LIMIT,
  DEFAULT_RANGE_LIMIT,
  type ChangeBatch,
  type Committed,
  type Compare,
  type LeaseId,
  type Operation,
  type RangePage,
  type RangeRequest,
  type Revision,
  type StateStore,
  type StoreEntry,
} from '@cloudless/state-store';
import {
  EtcdClient,
  MAINTENANCE,
  READ,
  RENEW,
  WRITE,
  type EtcdClientOptions,
} from '../client/etcd-client.js';
import { EntryCodec } from '../watch/batch-assembler.js';
import { EtcdWatcher, type WatchRequest } from '../watch/etcd-watcher.js';
import { ProgressMarker } from '../watch/progress-marker.js';
import { TxnCodec, type Transaction } from '../write/txn-request.js';
import { WriteQueue } from '../write/write-queue.js';
import { HistoryCompactor } from './history-compactor.js';
import { readHistory, toHistoricWrite } from './history-reader.js';
import { KeySpace, type RevisionMap } from './key-space.js';
import { parseLeaseId, toLeaseId } from './lease-id.js';
import { SpaceMonitor } from './space-monitor.js';
import { openExistingRecord, openStoreRecord, rewriteStoreRecord } from './store-record.js';
import { requireNoForeignKeys } from './foreign-keys.js';

export interface EtcdStateStoreOptions extends Omit<EtcdClientOptions, 'clock' | 'log'> {
  /** Prefix of all keys of the store in etcd. Default `/cloudless`. */
  readonly prefix?: string;
  /** Clock of time limits and pauses. Default: that of the system. */
  readonly clock?: Clock;
  /** Default: no log. */
  readonly log?: Log;
  /** Changes that stay in the history of etcd, 1 or more. Default 100 000. */
  readonly historyLimit?: number;
  /** Bytes of changes that stay in the history of etcd, 1 or more. Default 64 MiB. */
  readonly historyBytes?: number;
  /**
   * Time between the start of compaction and the read of the history that earlier leaders wrote,
   * milliseconds, 0 or more. Default 10 000: a new leader has more urgent work.
   */
  readonly compactAfterMs?: number;
  /**
   * Runs with false when etcd refuses writes because its space quota is exceeded, and with true once
   * it accepts writes again.
   */
  readonly onSpaceChange?: (hasSpace: boolean) => void;
  /**
   * True: keys of other applications in the same etcd cluster are accepted. Revisions then grow by
   * more than one, and {@link StateStore.revision} can be newer than the newest change of the store.
   * For tests. Default false.
   */
  readonly allowForeignKeys?: boolean;
  /** True: a store that does not exist is refused instead of created. Default false. */
  readonly mustExist?: boolean;
}

/** A store on etcd, with what only this engine has. */
export interface EtcdStateStore extends StateStore {
  /**
   * Lets this process drop old history, also that of earlier leaders, which concerns all users of
   * the etcd cluster. Call it with true on the coordinator that leads, and with false on the others.
   * Initially false.
   */
  setCompacting(isCompacting: boolean): void;
  /** Resolves when this process has read the history of earlier leaders, and no compaction runs. */
  waitUntilCompacted(): Promise<void>;
}

/** Entries of one page when the caller sets no `limit`. */
const DEFAULT_LIMIT = DEFAULT_RANGE_LIMIT;
const DEFAULT_COMPACT_AFTER_MS = 10_000;

/**
 * Opens the store of a prefix in an etcd cluster, or creates a new one. Several processes may have
 * the same store open. Continues while any majority of the members runs.
 * @throws kind `precondition` when TLS settings do not fit, the endpoints belong to several
 *   clusters, or keys of other applications are in the cluster; `unauthenticated` when etcd does not
 *   accept the user; `unavailable` or `deadline` when no member answers; `invalid` for a prefix or
 *   history limit that is not allowed; `notFound` when the store must exist and does not. After an
 *   error nothing was created.
 * @example
 * const store = await openEtcdStateStore({ endpoints: ['https://10.0.0.1:2379'], tls, clock });
 * await store.txn([], [{ put: 'a', value }]);
 * await store.close();
 */
export async function openEtcdStateStore(options: EtcdStateStoreOptions): Promise<EtcdStateStore> {
  const { clock = systemClock, log = silentLog, prefix = '/cloudless' } = options;
  const { historyLimit = DEFAULT_HISTORY_LIMIT, historyBytes = DEFAULT_HISTORY_BYTES } = options;
  checkHistoryLimit(historyLimit, historyBytes);
  const keys = new KeySpace(prefix);
  const client = new EtcdClient({ ...options, clock, log });
  try {
    await client.requireUsableEndpoint();
    // before a record is created: a record under a mistyped prefix would lock out the real cluster
    if (options.allowForeignKeys !== true) await requireNoForeignKeys(client, keys, prefix);
    const revisions =
      options.mustExist === true
        ? await openExistingRecord(client, keys, prefix)
        : await openStoreRecord(client, keys);
    return new Store(client, keys, revisions, {
      ...options,
      ...{ clock, log, prefix, historyLimit, historyBytes },
    });
  } catch (reason) {
    client.close();
    throw reason;
  }
}

type StoreOptions = EtcdStateStoreOptions &
  Required<
    Pick<EtcdStateStoreOptions, 'clock' | 'log' | 'prefix' | 'historyLimit' | 'historyBytes'>
  >;

class Store implements EtcdStateStore {
  private readonly codec: EntryCodec;
  private readonly queue: WriteQueue;
  private readonly compactor: HistoryCompactor;
  private readonly space: SpaceMonitor;
  private readonly marker: ProgressMarker;
  private readonly ending = new AbortController();
  private closed: Promise<void> | undefined;

  constructor(
    private readonly client: EtcdClient,
    private readonly keys: KeySpace,
    private readonly revisions: RevisionMap,
    private readonly options: StoreOptions,
  ) {
    const { historyLimit, historyBytes, log, clock, prefix } = options;
    setMaxListeners(0, this.ending.signal); // one of each watch
    this.codec = new EntryCodec(keys, revisions);
    this.space = new SpaceMonitor({
      client,
      clock,
      log,
      onSpaceChange: (hasSpace) => options.onSpaceChange?.(hasSpace),
    });
    this.marker = new ProgressMarker({ clock, log, mark: () => rewriteStoreRecord(client, keys) });
    this.queue = new WriteQueue({
      codec: new TxnCodec(keys, revisions),
      prefixBytes: prefix.length + 1,
      send: (request) => client.call(WRITE, ({ kv }, settings) => kv.txn(request, settings)),
      onCommitted: ({ revision }, group) => this.recordWrites(revision, group),
      onFailed: (reason) => {
        if (errorKindOf(reason) === 'exhausted') this.space.recordRefusal();
      },
    });
    const { compactAfterMs = DEFAULT_COMPACT_AFTER_MS } = options;
    this.compactor = new HistoryCompactor({
      ...{ historyLimit, historyBytes, log },
      pause: (signal) => sleep(clock, compactAfterMs, signal),
      readHistory: (last, signal) =>
        readHistory({ client, keys, revisions, codec: this.codec, historyLimit }, last, signal),
      compact: (revision) =>
        client.call(MAINTENANCE, ({ kv }, settings) =>
          kv.compact({ revision: revisions.toEtcd(revision) }, settings),
        ),
    });
  }

  async get(key: string): Promise<StoreEntry | undefined> {
    this.checkOpen();
    checkKey(key);
    const request = { key: this.keys.toEtcdKey(key) };
    const { kvs } = await this.client.call(READ, ({ kv }, settings) => kv.range(request, settings));
    const [entry] = kvs;
    return entry === undefined ? undefined : this.codec.toEntry(entry);
  }

  async range(request: RangeRequest): Promise<RangePage> {
    this.checkOpen();
    checkRange(request);
    const { prefix, after, limit = DEFAULT_LIMIT, revision } = request;
    const { kvs, more, header } = await this.client.call(READ, ({ kv }, settings) =>
      kv.range(
        {
          ...this.keys.toEtcdRange(prefix, after),
          limit: BigInt(limit),
          ...(revision === undefined ? {} : { revision: this.revisions.toEtcd(revision) }),
        },
        settings,
      ),
    );
    const entries = kvs.map((entry) => this.codec.toEntry(entry));
    const last = entries.at(-1);
    return {
      entries,
      revision: revision ?? this.revisions.fromEtcd(header?.revision ?? 0n),
      ...(more && last !== undefined ? { next: last.key } : {}),
    };
  }

  async txn(compares: readonly Compare[], operations: readonly Operation[]): Promise<Committed> {
    this.checkOpen();
    const bytes = checkTransaction(compares, operations);
    for (const operation of operations)
      if ('put' in operation && operation.lease !== undefined) parseLeaseId(operation.lease);
    return this.queue.submit({ compares, operations }, bytes);
  }

  watch(request: WatchRequest): AsyncIterable<ChangeBatch> {
    return { [Symbol.asyncIterator]: () => this.startWatch(request) };
  }

  async revision(): Promise<Revision> {
    this.checkOpen();
    const { header } = await this.client.call(READ, ({ kv }, settings) =>
      kv.range({ key: this.keys.metaKey, countOnly: true }, settings),
    );
    const revision = this.revisions.fromEtcd(header?.revision ?? 0n);
    this.marker.recordKnown(revision);
    return revision;
  }

  /** Selects the id here, so that another attempt grants the same lease. */
  async grantLease(ttlMs: number): Promise<LeaseId> {
    this.checkOpen();
    checkTtl(ttlMs);
    const id = randomBytes(8).readBigUInt64BE() >> 1n || 1n;
    const request = { ID: id, TTL: BigInt(Math.ceil(ttlMs / 1_000)) };
    await this.client.call(READ, async ({ lease }, settings) => {
      try {
        return await lease.leaseGrant(request, settings);
      } catch (reason) {
        // Granted by an attempt whose answer was lost.
        if (String(reason).includes('lease already exists')) return {};
        throw reason;
      }
    });
    return toLeaseId(id);
  }

  async keepAlive(lease: LeaseId): Promise<void> {
    this.checkOpen();
    const ID = parseLeaseId(lease);
    const { TTL } = await this.client.call(RENEW, async (endpoint, settings) => {
      for await (const response of endpoint.lease.leaseKeepAlive(toStream({ ID }), settings))
        return response;
      throw new Error('etcd ended the renewal of a lease without an answer');
    });
    if (TTL <= 0n)
      throw new CloudlessError('notFound', `lease ${lease} does not exist or has ended`);
  }

  async revokeLease(lease: LeaseId): Promise<void> {
    this.checkOpen();
    try {
      const ID = parseLeaseId(lease);
      await this.client.call(READ, (endpoint, settings) =>
        endpoint.lease.leaseRevoke({ ID }, settings),
      );
    } catch (reason) {
      if (errorKindOf(reason) !== 'notFound') throw reason;
    }
  }

  setCompacting(isCompacting: boolean): void {
    this.compactor.setEnabled(isCompacting);
  }

  waitUntilCompacted(): Promise<void> {
    return this.compactor.waitUntilIdle();
  }

  close(): Promise<void> {
    this.closed ??= this.shutDown();
    return this.closed;
  }

  private async shutDown(): Promise<void> {
    this.ending.abort();
    this.compactor.setEnabled(false);
    this.space.stop();
    this.marker.stop();
    await this.queue.waitUntilIdle();
    this.client.close(); // also ends a compaction, which may take long
    await this.compactor.waitUntilIdle();
  }

  private startWatch(request: WatchRequest): AsyncIterator<ChangeBatch, undefined> {
    try {
      this.checkOpen();
      checkPrefix(request.prefix);
    } catch (reason) {
      return { next: () => Promise.reject(reason as Error) };
    }
    const { client, keys, revisions, codec, marker } = this;
    const { clock, log } = this.options;
    const deps = { client, keys, revisions, codec, marker, clock, log, closed: this.ending.signal };
    return new EtcdWatcher({ ...deps, readRevision: () => this.revision() }, request);
  }

  private recordWrites(revision: Revision, group: readonly Transaction[]): void {
    this.space.recordWrite();
    const operations = group.flatMap((transaction) => transaction.operations);
    // without a put, the revision may be that of an earlier change of anyone
    if (operations.some((operation) => 'put' in operation)) this.marker.recordChange(revision);
    else this.marker.recordKnown(revision);
    const changes = operations.map((operation) =>
      'put' in operation
        ? { isDeletion: false, bytes: operation.put.length + operation.value.byteLength }
        : { isDeletion: true, bytes: 0 },
    );
    if (changes.length > 0) this.compactor.record(toHistoricWrite(revision, changes));
  }

  private checkOpen(): void {
    if (this.closed !== undefined)
      throw new CloudlessError('STORE_UNAVAILABLE', 'the store is closed');
  }
}

/** A stream of one request. */
async function* toStream<Request>(request: Request): AsyncGenerator<Request> {
  yield request;
}
