import {
  CloudlessError,
  errorFields,
  errorKindOf,
  silentLog,
  type Clock,
  type Log,
} from '@cloudless/base';
import { CommitQueue } from './commit-queue.js';
import { FaultWatch } from './fault-watch.js';
import { LeaseClock } from './lease-clock.js';
import { readRange, toStoreEntry } from './read-range.js';
import type {
  ChangeBatch,
  Committed,
  Compare,
  LeaseId,
  Operation,
  RangePage,
  RangeRequest,
  Revision,
  StateStore,
  StoreEntry,
} from './state-store.js';
import type { Storage } from './storage.js';
import type { StorageFault } from './storage-fault.js';
import { RoomWatch } from './room-watch.js';
import {
  checkHistoryLimit,
  checkKey,
  checkPrefix,
  checkRange,
  checkTransaction,
  checkTtl,
} from './validate.js';
import { WatchHub } from './watch-hub.js';
import { Watcher, type WatchRequest } from './watcher.js';

/** Wait before the keys of an ended lease are deleted again, after the disk was full. */
const EXPIRY_RETRY_MS = 1_000;
/** Needs of {@link createEngineStore}. */
export interface EngineStoreOptions {
  /** Taken over: the store closes it. */
  readonly storage: Storage;
  /** Measures leases. */
  readonly clock: Clock;
  /** How many changes the storage retains; bounds what is kept in memory for watches. */
  readonly historyLimit: number;
  /** Default: none. */
  readonly log?: Log;
  /**
   * Told when the disk turns out to be full, with false, and some seconds after it takes all writes
   * again, with true.
   */
  readonly onRoom?: (hasRoom: boolean) => void;
  /**
   * Interval, in milliseconds, at which the files are also checked without writes. Default: none.
   */
  readonly lookEveryMs?: number;
  /**
   * Called once, when the files of the storage were lost. From then on writes are refused, and
   * reads go on.
   */
  readonly onFault?: (fault: StorageFault) => void;
}

/**
 * Makes a store of an engine's storage: validation, group commit, watches and leases are here,
 * alike for all engines.
 */
export function createEngineStore(options: EngineStoreOptions): StateStore {
  checkHistoryLimit(options.historyLimit);
  return new EngineStore(options);
}

class EngineStore implements StateStore {
  private readonly storage: Storage;
  private readonly hub: WatchHub;
  private readonly queue: CommitQueue;
  private readonly leases: LeaseClock;
  private readonly room: RoomWatch;
  private readonly faults: FaultWatch | undefined;
  private readonly log: Log;
  private failure: CloudlessError | undefined;
  private closed: Promise<void> | undefined;

  constructor(private readonly options: EngineStoreOptions) {
    this.storage = options.storage;
    this.log = (options.log ?? silentLog).child({ component: 'state-store' });
    this.hub = new WatchHub(options.storage, options.historyLimit);
    this.queue = new CommitQueue({
      storage: options.storage,
      look: () => this.faults?.look(),
      onCommitted: (transactions) => this.hub.publish(transactions),
      onExhausted: () => this.room.refused(),
      onFailed: (reason) => this.onFailed(reason),
    });
    this.room = new RoomWatch({
      clock: options.clock,
      log: this.log,
      probe: () => this.queue.submit(0, (draft) => draft.probe()),
      onRoom: (hasRoom) => options.onRoom?.(hasRoom),
    });
    const { fault } = options.storage;
    if (fault !== undefined) this.faults = this.watchFaults(fault.bind(options.storage));
    this.leases = new LeaseClock(options.clock, (lease) => void this.expire(lease));
    for (const [lease, ttlMs] of options.storage.leases()) this.leases.start(lease, ttlMs);
  }

  async get(key: string): Promise<StoreEntry | undefined> {
    this.checkOpen();
    checkKey(key);
    const entry = this.storage.read((reader) => reader.get(key));
    return entry === undefined ? undefined : toStoreEntry(entry);
  }

  async range(request: RangeRequest): Promise<RangePage> {
    this.checkOpen();
    checkRange(request);
    return this.storage.read((reader) => readRange(reader, request));
  }

  async txn(compares: readonly Compare[], operations: readonly Operation[]): Promise<Committed> {
    this.checkOpen();
    const bytes = checkTransaction(compares, operations);
    // the caller may reuse its own
    const [checks, writes] = [compares.map((compare) => ({ ...compare })), operations.map(copyOf)];
    return this.queue.submit(bytes, (draft) => draft.transact(checks, writes));
  }

  watch(request: WatchRequest): AsyncIterable<ChangeBatch> {
    return { [Symbol.asyncIterator]: () => this.startWatch(request) };
  }

  async revision(): Promise<Revision> {
    this.checkOpen();
    return this.storage.read((reader) => reader.head().revision);
  }

  async grantLease(ttlMs: number): Promise<LeaseId> {
    this.checkOpen();
    checkTtl(ttlMs);
    const lease = await this.queue.submit(LEASE_BYTES, (draft) => draft.grantLease(ttlMs));
    if (this.closed === undefined) this.leases.start(lease, ttlMs);
    return lease;
  }

  async keepAlive(lease: LeaseId): Promise<void> {
    this.checkOpen();
    if (!this.leases.renew(lease))
      throw new CloudlessError('notFound', `lease ${lease} does not exist or has ended`);
  }

  async revokeLease(lease: LeaseId): Promise<void> {
    this.checkOpen();
    await this.endLease(lease);
    this.leases.stop(lease);
  }

  close(): Promise<void> {
    this.closed ??= this.shutDown();
    return this.closed;
  }

  private async shutDown(): Promise<void> {
    this.hub.end();
    this.leases.stopAll();
    this.room.stop();
    this.faults?.stop();
    await this.queue.idle();
    await this.storage.close();
  }

  private watchFaults(look: () => StorageFault | undefined): FaultWatch {
    return new FaultWatch({
      clock: this.options.clock,
      log: this.log,
      everyMs: this.options.lookEveryMs,
      look,
      onFault: (fault) => {
        this.leases.stopAll(); // their keys cannot be deleted
        this.room.stop();
        this.options.onFault?.(fault);
      },
    });
  }

  private startWatch(request: WatchRequest): AsyncIterator<ChangeBatch, undefined> {
    try {
      this.checkOpen();
      checkPrefix(request.prefix);
      return new Watcher(this.hub, request);
    } catch (reason) {
      return { next: () => Promise.reject(reason as Error) };
    }
  }

  private endLease(lease: LeaseId): Promise<void> {
    return this.queue.submit(LEASE_BYTES, (draft) => draft.endLease(lease));
  }

  /** The lease has ended for its holder already; its keys follow, if need be later. */
  private async expire(lease: LeaseId): Promise<void> {
    if (this.closed !== undefined) return; // after a restart it has its full time again
    try {
      await this.endLease(lease);
    } catch (reason) {
      if (this.failure !== undefined || this.faults?.fault !== undefined) return;
      // A full disk has been told of already.
      if (errorKindOf(reason) !== 'exhausted')
        this.log.warn('keys of an ended lease could not be deleted', {
          lease,
          retryMs: EXPIRY_RETRY_MS,
          ...errorFields(reason),
        });
      this.options.clock.setTimer(EXPIRY_RETRY_MS, () => void this.expire(lease));
    }
  }

  private onFailed(reason: CloudlessError): void {
    this.failure = reason;
    this.room.stop();
    this.faults?.stop();
    this.log.error('store out of service', errorFields(reason));
    this.leases.stopAll();
    this.hub.end(reason);
  }

  private checkOpen(): void {
    if (this.failure !== undefined) throw this.failure;
    if (this.closed !== undefined) throw new CloudlessError('unavailable', 'the store is closed');
  }
}

/** What a lease's record takes, roughly. */
const LEASE_BYTES = 64;

function copyOf(operation: Operation): Operation {
  return 'put' in operation
    ? { ...operation, value: new Uint8Array(operation.value) }
    : { ...operation };
}
