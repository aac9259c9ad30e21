import { create } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { ClusterRecordSchema, LeaderRecordSchema, type ClusterRecord } from '@cloudless/api/store';
import { CloudlessError, errorFields, errorKindOf, randomHex, type Clock, type Log, type Random } from '@cloudless/base';
import type { ChangeBatch, Revision, StateStore } from '@cloudless/state-store';
import {
  CLUSTER_ID_KEY,
  LEADER_KEY,
  ROOT,
  SCHEMA_VERSION,
  decodeRecord,
  eventId,
  keyOf,
  parseKey,
  type RecordKind,
  type RecordOf,
} from './records.js';
import { Transaction, type EventStamp } from './transaction.js';
import { IndexedView, type ClusterView, type RecordChange, type Stored } from './view.js';

/** Needs of {@link openClusterState}. */
export interface ClusterStateOptions {
  readonly store: StateStore;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  /** Name of this coordinator, kept in the leader record. */
  readonly holder: string;
}

/** Told of every batch of changes after the view shows them, in revision order. Must not throw. */
export type ChangeListener = (changes: readonly RecordChange[], revision: Revision) => void;

/**
 * Reads the whole store, takes the leadership with a new epoch, and follows the store from there.
 * @throws kind `precondition` when the store was written by a layout this version does not know, `internal` when a record
 *   cannot be read, `conflict` when others keep taking the leadership meanwhile.
 */
export async function openClusterState(options: ClusterStateOptions): Promise<ClusterState> {
  const state = new ClusterState(options);
  try {
    await state.start();
  } catch (reason) {
    await state.close();
    throw reason;
  }
  return state;
}

/** The typed state of the cluster: a view that is up to date with our own writes, and transactions over it. */
export class ClusterState {
  private readonly indexed = new IndexedView();
  private readonly listeners = new Set<ChangeListener>();
  private waiters: { readonly revision: Revision; readonly resolve: () => void; readonly reject: (reason: unknown) => void }[] =
    [];
  private readonly stopping = new AbortController();
  private following: Promise<void> = Promise.resolve();
  private broken: unknown;
  private cluster: ClusterRecord | undefined;
  private leadership: Stored<bigint> | undefined;
  private eventCount = 0;
  private readonly stamp: EventStamp;

  constructor(private readonly options: ClusterStateOptions) {
    this.stamp = {
      nextId: () => eventId(this.epoch, this.eventCount++),
      nowMs: () => options.clock.wallTime(),
    };
  }

  /** The newest state, including every write that was acknowledged to us. Read it and plan without waiting in between. */
  view(): ClusterView {
    return this.indexed;
  }

  /** Identity of this cluster, made once with its store. */
  get clusterId(): string {
    return this.cluster?.clusterId ?? '';
  }

  /** Number of our leadership; grows with each start. */
  get epoch(): bigint {
    return this.leadership?.value ?? 0n;
  }

  /** The view follows the store; false once that has failed for good. */
  get isFollowing(): boolean {
    return this.broken === undefined;
  }

  /** Starts a transaction that holds only while we lead. */
  transaction(): Transaction {
    const transaction = new Transaction(this.stamp);
    if (this.leadership !== undefined) transaction.require('leader', LEADER_KEY, this.leadership);
    return transaction;
  }

  /**
   * Commits, and resolves once the view shows it.
   * @throws `RevisionConflictError` when a record was changed since it was read: read and plan again.
   */
  async commit(transaction: Transaction): Promise<Revision> {
    if (this.broken !== undefined)
      throw new CloudlessError('unavailable', 'the state store is out of order', { cause: this.broken });
    const { revision } = await this.options.store.txn(transaction.compares(), transaction.operations());
    await this.reached(revision);
    return revision;
  }

  /** @returns Ends the subscription. */
  subscribe(listener: ChangeListener): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /** Resolves when the view shows `revision` or a later one. */
  reached(revision: Revision): Promise<void> {
    if (this.indexed.revision >= revision) return Promise.resolve();
    if (this.broken !== undefined) return Promise.reject(this.broken);
    return new Promise((resolve, reject) => this.waiters.push({ revision, resolve, reject }));
  }

  async start(): Promise<void> {
    await this.load();
    await this.ensureCluster();
    await this.lead();
  }

  /** Stops following. The store stays open: it belongs to the caller. */
  async close(): Promise<void> {
    this.stopping.abort();
    await this.following;
    this.fail(new CloudlessError('unavailable', 'the coordinator is stopping'));
  }

  private async load(): Promise<void> {
    const seen = new Set<string>();
    const changes: RecordChange[] = [];
    let after: string | undefined;
    let revision: Revision | undefined;
    do {
      const page = await this.options.store.range({
        prefix: ROOT,
        ...(after === undefined ? {} : { after }),
        ...(revision === undefined ? {} : { revision }),
      });
      revision = page.revision;
      after = page.next;
      for (const entry of page.entries) {
        const parsed = parseKey(entry.key);
        if (parsed === undefined) continue;
        seen.add(entry.key);
        if (this.indexed.get(parsed.kind, parsed.id)?.revision === entry.modRevision) continue;
        changes.push(this.take(parsed.kind, parsed.id, entry.value, entry.modRevision));
      }
    } while (after !== undefined);
    for (const kind of ALL_KINDS) {
      for (const id of [...this.indexed.ids(kind)]) {
        if (!seen.has(keyOf(kind, id))) changes.push(this.indexed.apply(kind, id, undefined));
      }
    }
    this.publish(changes, revision);
    this.following = this.follow(revision);
  }

  private take<Kind extends RecordKind>(kind: Kind, id: string, value: Uint8Array, revision: Revision): RecordChange {
    const stored: Stored<RecordOf<Kind>> = { value: decodeRecord(kind, id, value), revision };
    return this.indexed.apply(kind, id, stored) as RecordChange;
  }

  private async follow(after: Revision): Promise<void> {
    const { store, log } = this.options;
    try {
      for await (const batch of store.watch({ prefix: ROOT, after, signal: this.stopping.signal })) this.applyBatch(batch);
    } catch (reason) {
      if (this.stopping.signal.aborted) return;
      if (errorKindOf(reason) === 'compacted') {
        log.warn('view fell behind the store, reading it anew', { revision: this.indexed.revision });
        await this.load();
        return;
      }
      log.error('state store watch failed', errorFields(reason));
      this.fail(reason);
    }
  }

  private applyBatch(batch: ChangeBatch): void {
    const changes = batch.changes.flatMap((change): RecordChange[] => {
      const parsed = parseKey(change.kind === 'put' ? change.entry.key : change.key);
      if (parsed === undefined) return [];
      if (change.kind === 'delete') return [this.indexed.apply(parsed.kind, parsed.id, undefined)];
      return [this.take(parsed.kind, parsed.id, change.entry.value, change.entry.modRevision)];
    });
    this.publish(changes, batch.revision);
  }

  private publish(changes: readonly RecordChange[], revision: Revision): void {
    this.indexed.revision = revision;
    if (changes.length > 0) for (const listener of this.listeners) listener(changes, revision);
    const due = this.waiters.filter((waiter) => waiter.revision <= revision);
    if (due.length === 0) return;
    this.waiters = this.waiters.filter((waiter) => waiter.revision > revision);
    for (const waiter of due) waiter.resolve();
  }

  private fail(reason: unknown): void {
    this.broken = reason;
    for (const waiter of this.waiters.splice(0)) waiter.reject(reason);
  }

  private async ensureCluster(): Promise<void> {
    const { clock, random } = this.options;
    const existing = this.indexed.get('meta', CLUSTER_ID_KEY);
    if (existing !== undefined) {
      if (existing.value.schemaVersion !== SCHEMA_VERSION) {
        throw new CloudlessError(
          'precondition',
          `the store has layout ${existing.value.schemaVersion} and this version reads layout ${SCHEMA_VERSION}; start the version that wrote it`,
        );
      }
      this.cluster = existing.value;
      return;
    }
    const made = create(ClusterRecordSchema, {
      clusterId: randomHex(random, CLUSTER_ID_BYTES),
      schemaVersion: SCHEMA_VERSION,
      createdAt: timestampFromMs(clock.wallTime()),
    });
    await this.commit(this.transaction().require('meta', CLUSTER_ID_KEY, 'absent').put('meta', CLUSTER_ID_KEY, made));
    this.cluster = made;
  }

  private async lead(): Promise<void> {
    const before = this.indexed.get('leader', LEADER_KEY);
    const epoch = (before?.value.epoch ?? 0n) + 1n;
    const record = create(LeaderRecordSchema, { epoch, holder: this.options.holder });
    const transaction = new Transaction(this.stamp)
      .require('leader', LEADER_KEY, before ?? 'absent')
      .put('leader', LEADER_KEY, record);
    const revision = await this.commit(transaction);
    this.leadership = { value: epoch, revision };
  }
}

const ALL_KINDS: readonly RecordKind[] = [
  'meta',
  'leader',
  'workload',
  'name',
  'version',
  'control',
  'replica',
  'node',
  'event',
  'request',
];
const CLUSTER_ID_BYTES = 8;
