import {
  CloudlessError,
  errorFields,
  errorKindOf,
  silentLog,
  type Clock,
  type Log,
} from '@cloudless/base';
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
} from '../state-store.js';
import {
  checkHistoryLimit,
  checkKey,
  checkPrefix,
  checkRange,
  checkTransaction,
  checkTtl,
} from '../validate.js';
import { WatchHub } from '../watch/watch-hub.js';
import { Watcher, type WatchRequest } from '../watch/watcher.js';
import { CommitQueue } from './commit-queue.js';
import { StorageFaultMonitor } from './storage-fault-monitor.js';
import { LeaseTimers } from './lease-timers.js';
import { readRange, toStoreEntry } from './read-range.js';
import type { Storage } from './storage.js';
import type { StorageFault } from './storage-fault.js';
import { DiskSpaceMonitor } from './disk-space-monitor.js';

/** Delay before the next attempt to delete the keys of an expired lease after a failure. */
const EXPIRY_RETRY_MS = 1_000;

export interface EngineStoreOptions {
  /** The store owns this storage and closes it. */
  readonly storage: Storage;
  /** Clock of leases, file checks and probes of the disk. */
  readonly clock: Clock;
  /**
   * Number of changes that the storage retains. The store uses the number only to limit the changes
   * kept in memory for watches.
   */
  readonly historyLimit: number;
  /** Default: no log. */
  readonly log?: Log;
  /**
   * Runs with false when a write fails because the disk is full, and with true when no write was
   * refused for 5 s and a probe could be written.
   */
  readonly onDiskSpaceChange?: (hasSpace: boolean) => void;
  /**
   * Interval of checks of the files, in milliseconds. Default: files are checked only before and
   * after each write.
   */
  readonly checkIntervalMs?: number;
  /**
   * Runs once, when the files of the storage were lost. From then on writes are refused and reads
   * continue.
   */
  readonly onFault?: (fault: StorageFault) => void;
}

/**
 * Creates a store on the storage of an engine. All engines share this validation, group commit,
 * watches and leases.
 * @throws kind `invalid` for a history limit that is not an integer of 1 or more.
 */
export function createEngineStore(options: EngineStoreOptions): StateStore {
  checkHistoryLimit(options.historyLimit);
  return new EngineStore(options);
}

class EngineStore implements StateStore {
  private readonly storage: Storage;
  private readonly hub: WatchHub;
  private readonly queue: CommitQueue;
  private readonly leases: LeaseTimers;
  private readonly diskSpace: DiskSpaceMonitor;
  private readonly faultMonitor: StorageFaultMonitor | undefined;
  private readonly log: Log;
  private failure: CloudlessError | undefined;
  private closed: Promise<void> | undefined;

  constructor(private readonly options: EngineStoreOptions) {
    this.storage = options.storage;
    this.log = (options.log ?? silentLog).child({ component: 'state-store' });
    this.hub = new WatchHub(options.storage, options.historyLimit);
    this.queue = new CommitQueue({
      storage: options.storage,
      checkFiles: () => this.faultMonitor?.check(),
      onCommitted: (transactions) => this.hub.publish(transactions),
      onDiskFull: () => this.diskSpace.recordRefusal(),
      onFailed: (reason) => this.onFailed(reason),
    });
    this.diskSpace = new DiskSpaceMonitor({
      clock: options.clock,
      log: this.log,
      probe: () => this.queue.submit(0, (draft) => draft.probe()),
      onDiskSpaceChange: (hasSpace) => options.onDiskSpaceChange?.(hasSpace),
    });
    const { fault } = options.storage;
    if (fault !== undefined)
      this.faultMonitor = this.createFaultMonitor(fault.bind(options.storage));
    this.leases = new LeaseTimers(options.clock, (lease) => void this.expire(lease));
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
    return this.queue.submit(bytes, (draft) => draft.transact(compares, operations));
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
    this.diskSpace.stop();
    this.faultMonitor?.stop();
    await this.queue.waitUntilIdle();
    await this.storage.close();
  }

  private createFaultMonitor(checkFiles: () => StorageFault | undefined): StorageFaultMonitor {
    return new StorageFaultMonitor({
      clock: this.options.clock,
      log: this.log,
      intervalMs: this.options.checkIntervalMs,
      checkFiles,
      onFault: (fault) => {
        this.leases.stopAll(); // the keys of expired leases can no longer be deleted
        this.diskSpace.stop();
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

  /**
   * Deletes the keys of an expired lease, and tries again after a failure. Renewals of the lease
   * are already refused.
   */
  private async expire(lease: LeaseId): Promise<void> {
    if (this.closed !== undefined) return; // the lease starts with its full time after a restart
    try {
      await this.endLease(lease);
    } catch (reason) {
      if (this.failure !== undefined || this.faultMonitor?.fault !== undefined) return;
      // A full disk has been reported already.
      if (errorKindOf(reason) !== 'exhausted')
        this.log.warn('keys of an expired lease not deleted', {
          lease,
          retryMs: EXPIRY_RETRY_MS,
          ...errorFields(reason),
        });
      if (this.closed === undefined) this.leases.retryExpiry(lease, EXPIRY_RETRY_MS);
    }
  }

  private onFailed(reason: CloudlessError): void {
    this.failure = reason;
    this.diskSpace.stop();
    this.faultMonitor?.stop();
    this.log.error('store out of service', errorFields(reason));
    this.leases.stopAll();
    this.hub.end(reason);
  }

  private checkOpen(): void {
    if (this.failure !== undefined) throw this.failure;
    if (this.closed !== undefined)
      throw new CloudlessError('STORE_UNAVAILABLE', 'the store is closed');
  }
}

/** Approximate bytes of the record of a lease. */
const LEASE_BYTES = 64;
