import {
  CloudlessError,
  StoppedError,
  errorFields,
  errorKindOf,
  type Log,
  type StopSignal,
} from '@cloudless/base';
import type { Change, ChangeBatch, Revision, StateStore, StoreEntry } from '@cloudless/state-store';
import {
  KEY_PREFIX,
  RECORD_KINDS,
  decodeRecord,
  isViewed,
  toKey,
  parseViewKey,
  type RecordKind,
  type RecordOf,
} from '../records/records.js';
import type { RecordPut, RecordWrite } from '../transaction/transaction.js';
import type { FollowRetries } from './follow-retries.js';
import { OwnWrites } from './own-writes.js';
import type { PreloadedView } from './preloaded-view.js';
import { RevisionWaiters } from './revision-waiters.js';
import { IndexedView, type RecordChange, type Stored } from './view.js';

/**
 * Called with every batch of changes after the view shows the batch, in revision order. Must not
 * throw.
 */
export type ChangeListener = (changes: readonly RecordChange[], revision: Revision) => void;

/** One step of the view: the changes of a revision, or the difference to a snapshot. */
export interface ViewBatch {
  /** Empty when the revision changed no known record. */
  readonly changes: readonly RecordChange[];
  readonly revision: Revision;
  /** Bytes of the keys and values of the records before and after, as the store holds them. */
  readonly bytes: number;
  /** True for a snapshot, which may stand for many revisions. */
  readonly isSnapshot: boolean;
}

/** A change with its decoded record; `after` is undefined when the record was deleted. */
interface DecodedChange {
  readonly kind: RecordKind;
  readonly id: string;
  readonly after: Stored<RecordOf<RecordKind>> | undefined;
}

/** A snapshot of the store, as far as it differs from the view. */
interface Snapshot {
  /** The records that the view does not show. */
  readonly changed: readonly DecodedChange[];
  /** All keys. */
  readonly keys: ReadonlySet<string>;
  readonly revision: Revision;
}

/**
 * Keeps a view up to date with a store: reads a snapshot, then applies every later change; reads a
 * new snapshot when the changes were compacted; continues at its revision after a failure, if it is
 * given retries. The view moves from one revision to the next in one
 * turn of the event loop: no reader sees a part of a batch or snapshot.
 */
export class ViewFollower {
  readonly view: IndexedView;
  private readonly isPreloaded: boolean;
  private readonly listeners = new Set<ChangeListener>();
  private readonly batchListeners = new Set<(batch: ViewBatch) => void>();
  private readonly waiters = new RevisionWaiters();
  private readonly endListeners = new Set<(reason: CloudlessError) => void>();
  private readonly stopping = new AbortController();
  /** Ends the current watch. */
  private watching = new AbortController();
  /** True when the next watch needs a new snapshot. */
  private isBehind = false;
  private following: Promise<void> = Promise.resolve();
  private ended: CloudlessError | undefined;
  private decodedCount: number;
  private readonly ownWrites = new OwnWrites();

  /**
   * @param retries - Default: the first failure of the watch ends the view.
   * @param preloaded - Filled when the store was opened. Default: the view reads the store.
   */
  constructor(
    private readonly store: StateStore,
    private readonly log: Log,
    private readonly retries?: FollowRetries,
    preloaded?: PreloadedView,
  ) {
    const { view, count } = preloaded?.take() ?? { view: undefined, count: 0 };
    this.view = view ?? new IndexedView();
    this.isPreloaded = view !== undefined;
    this.decodedCount = count;
  }

  /** The error, of kind `unavailable`, that ended the view; undefined while the view follows. */
  get failure(): CloudlessError | undefined {
    return this.ended;
  }

  /** Records that were decoded so far: those of the start, and those of other processes. */
  get recordsDecoded(): number {
    return this.decodedCount;
  }

  /**
   * Reads the whole store, unless the view was preloaded, and follows the store from there on.
   * Listeners that subscribed before are called once, without the records that were read.
   * @throws kind `internal` naming a record that cannot be read.
   */
  async start(): Promise<void> {
    if (this.isPreloaded) this.notifyFirst();
    else if (!(await this.loadFirst())) await this.load();
    this.following = this.follow();
  }

  /**
   * Calls `listener` with every batch of changes after the view shows the batch.
   * @returns A function that ends the subscription.
   */
  subscribe(listener: ChangeListener): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /**
   * Calls `listener` with every step of the view, also those without changes. Must not throw.
   * @returns A function that ends the subscription.
   */
  onBatch(listener: (batch: ViewBatch) => void): () => void {
    this.batchListeners.add(listener);
    return () => this.batchListeners.delete(listener);
  }

  /**
   * Calls `listener` when the view stops following, immediately if it already has.
   * @returns A function that ends the subscription.
   */
  onEnd(listener: (reason: CloudlessError) => void): () => void {
    if (this.ended !== undefined) listener(this.ended);
    else this.endListeners.add(listener);
    return () => this.endListeners.delete(listener);
  }

  /**
   * Resolves when the view shows `revision` or a later one.
   * @param signal - Ends the wait.
   * @throws kind `unavailable` when the view ends before that, `StoppedError` when `signal` is
   *   aborted before that.
   */
  waitForRevision(revision: Revision, signal?: StopSignal): Promise<void> {
    if (this.view.revision >= revision) return Promise.resolve();
    if (this.ended !== undefined) return Promise.reject(this.ended);
    if (signal?.aborted === true) return Promise.reject(new StoppedError(signal.reason));
    return this.waiters.wait(revision, signal);
  }

  /**
   * Lets the view take the records of these writes instead of decoding their bytes, when the store
   * delivers the very bytes that the records were encoded to. Deletions have no effect.
   * @returns A function that ends this. Call it when the commit has ended.
   */
  expect(writes: readonly RecordWrite[]): () => void {
    return this.ownWrites.add(writes);
  }

  /** Ends the watch and starts another one that continues at the revision of the view. */
  restartWatch(): void {
    this.watching.abort();
  }

  /** Reads a new snapshot, and notifies listeners of the differences between it and the view. */
  reload(): void {
    this.isBehind = true;
    this.watching.abort();
  }

  /** Stops following; the store stays open. */
  async close(): Promise<void> {
    this.stopping.abort();
    this.watching.abort();
    await this.following;
    this.end(new CloudlessError('SHUTTING_DOWN', 'the coordinator is stopping'));
  }

  /** Follows the store until the view is closed, or cannot be continued. */
  private async follow(): Promise<void> {
    const { signal } = this.stopping;
    while (!signal.aborted) {
      try {
        if (this.isBehind) await this.load();
        this.isBehind = false;
        const end = await this.watch();
        if (signal.aborted) return;
        if (end === 'storeClosed') {
          this.fail(new CloudlessError('STORE_UNAVAILABLE', 'the state store was closed'));
          return;
        }
        if (end === 'compacted') this.isBehind = true;
      } catch (reason) {
        if (signal.aborted) return;
        if (!(await this.retries?.waitAfterFailure(reason, this.view.revision, signal))) {
          this.fail(reason);
          return;
        }
      }
    }
  }

  private fail(reason: unknown): void {
    this.log.error('state store watch failed', errorFields(reason));
    this.end(new CloudlessError('STORE_UNAVAILABLE', 'the state store failed', { cause: reason }));
  }

  /** Applies changes until the watch ends. */
  private async watch(): Promise<'restarted' | 'storeClosed' | 'compacted'> {
    const { signal } = (this.watching = new AbortController());
    try {
      // Watches all keys, so that every revision is delivered.
      for await (const batch of this.store.watch({
        prefix: '',
        after: this.view.revision,
        signal,
      })) {
        this.applyBatch(batch);
        this.retries?.reportSuccess();
      }
      return signal.aborted ? 'restarted' : 'storeClosed';
    } catch (reason) {
      if (errorKindOf(reason) !== 'compacted') throw reason;
      this.log.warn('view fell behind the store, reading a new snapshot', {
        revision: this.view.revision,
      });
      return 'compacted';
    }
  }

  private applyBatch({ changes, revision }: ChangeBatch): void {
    const ownPuts = this.ownWrites.takePuts(changes);
    const decoded: DecodedChange[] = [];
    for (let index = 0; index < changes.length; index += 1) {
      const change = changes[index] as Change;
      const put = ownPuts[index];
      const next =
        change.kind === 'delete'
          ? toDeletion(change.key)
          : put?.record === undefined
            ? this.decodeEntry(change.entry)
            : toOwnChange(put, put.record, change.entry);
      if (next !== undefined) decoded.push(next);
    }
    this.publish(decoded, revision, false);
  }

  /**
   * Reads the first snapshot straight into the view. No reader uses the view yet, and a list of all
   * changes would double the memory of a start.
   * @returns False when the store compacted the revision during the read.
   */
  private async loadFirst(): Promise<boolean> {
    try {
      let page = await this.store.range({ prefix: KEY_PREFIX });
      const { revision } = page;
      for (;;) {
        for (const entry of page.entries) {
          const decoded = this.decodeEntry(entry);
          if (decoded !== undefined) this.view.apply(decoded.kind, decoded.id, decoded.after);
        }
        if (page.next === undefined) break;
        page = await this.store.range({ prefix: KEY_PREFIX, after: page.next, revision });
      }
      this.view.revision = revision;
      this.notifyFirst();
      return true;
    } catch (reason) {
      if (errorKindOf(reason) !== 'compacted') throw reason;
      return false;
    }
  }

  private notifyFirst(): void {
    const { revision } = this.view;
    for (const listener of this.listeners) listener([], revision);
    this.notify({ changes: [], revision, bytes: 0, isSnapshot: true });
  }

  /** Applies a snapshot: its records are set, and records that it lacks are deleted. */
  private async load(): Promise<void> {
    const { changed, keys, revision } = await this.readSnapshot();
    this.publish([...changed, ...this.listDeleted(keys)], revision, true);
  }

  /** Returns the deletions of the records whose keys are not in a snapshot. */
  private listDeleted(kept: ReadonlySet<string>): DecodedChange[] {
    return RECORD_KINDS.flatMap((kind) =>
      [...this.view.listIds(kind)]
        .filter((id) => !kept.has(toKey(kind, id)))
        .map((id): DecodedChange => ({ kind, id, after: undefined })),
    );
  }

  private isChanged({ key, modRevision }: StoreEntry): boolean {
    const parsed = parseViewKey(key);
    return parsed !== undefined && this.view.get(parsed.kind, parsed.id)?.revision !== modRevision;
  }

  /** Reads a snapshot. Starts again when the store compacts its revision during the read. */
  private async readSnapshot(): Promise<Snapshot> {
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await this.readPages();
      } catch (reason) {
        if (errorKindOf(reason) !== 'compacted' || attempt >= MAX_READS) throw reason;
      }
    }
  }

  /** Decodes page by page, so that only one page of entries is in memory. */
  private async readPages(): Promise<Snapshot> {
    const changed: DecodedChange[] = [];
    const keys = new Set<string>();
    let page = await this.store.range({ prefix: KEY_PREFIX });
    const { revision } = page;
    for (;;) {
      for (const entry of page.entries) {
        keys.add(entry.key);
        const change = this.isChanged(entry) ? this.decodeEntry(entry) : undefined;
        if (change !== undefined) changed.push(change);
      }
      if (page.next === undefined) return { changed, keys, revision };
      page = await this.store.range({ prefix: KEY_PREFIX, after: page.next, revision });
    }
  }

  /** @returns Undefined for a key of an unknown kind. */
  private decodeEntry(entry: StoreEntry): DecodedChange | undefined {
    const parsed = parseViewKey(entry.key);
    if (parsed === undefined) return undefined;
    const { kind, id } = parsed;
    this.decodedCount += 1;
    return toChange(kind, id, decodeRecord(kind, id, entry.value), entry);
  }

  private publish(
    decoded: readonly DecodedChange[],
    revision: Revision,
    isSnapshot: boolean,
  ): void {
    const { view } = this;
    const bytesBefore = view.changedBytes;
    const changes = decoded.map(({ kind, id, after }) => view.apply(kind, id, after));
    const bytes = view.changedBytes - bytesBefore;
    view.revision = revision;
    this.notify({ changes, revision, bytes, isSnapshot });
  }

  private notify(batch: ViewBatch): void {
    const { changes, revision } = batch;
    if (changes.length > 0) for (const listener of this.listeners) listener(changes, revision);
    for (const listener of this.batchListeners) listener(batch);
    this.waiters.resolveUpTo(revision);
  }

  private end(reason: CloudlessError): void {
    this.ended ??= reason;
    this.waiters.rejectAll(reason);
    const listeners = [...this.endListeners];
    this.endListeners.clear();
    for (const listener of listeners) listener(this.ended);
  }
}

/** @returns Undefined for a kind that views do not hold. */
function toOwnChange(
  { kind, id }: RecordPut,
  record: RecordOf<RecordKind>,
  entry: StoreEntry,
): DecodedChange | undefined {
  return isViewed(kind) ? toChange(kind, id, record, entry) : undefined;
}

function toChange(
  kind: RecordKind,
  id: string,
  record: RecordOf<RecordKind>,
  { key, value, modRevision }: StoreEntry,
): DecodedChange {
  const bytes = key.length + value.byteLength;
  return { kind, id, after: { value: record, revision: modRevision, bytes } };
}

/** @returns Undefined for a key of an unknown kind. */
function toDeletion(key: string): DecodedChange | undefined {
  const parsed = parseViewKey(key);
  return parsed && { ...parsed, after: undefined };
}

/**
 * Most attempts: a store that compacts its newest revision this often during a read cannot be
 * followed.
 */
const MAX_READS = 10;
