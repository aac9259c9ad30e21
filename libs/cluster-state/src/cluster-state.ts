import { create } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import {
  ClusterRecordSchema,
  type ClusterRecord,
  type LeaderRecord,
  type RestoredState,
} from '@cloudless/api/store';
import {
  CloudlessError,
  errorKindOf,
  noMeter,
  noTracer,
  randomHex,
  type Clock,
  type Log,
  type Meter,
  type Random,
  type StopSignal,
  type Tracer,
} from '@cloudless/base';
import {
  RevisionConflictError,
  exportSnapshot,
  type Revision,
  type SnapshotSummary,
  type StateStore,
} from '@cloudless/state-store';
import { changesAfter, checkRevision, recordsAt, type HistoricChanges } from './history.js';
import { LeadershipLoss, type LeadershipLostError } from './leadership-lost.js';
import {
  CLUSTER_ID_KEY,
  LEADER_KEY,
  SCHEMA_VERSION,
  decodeRecord,
  eventId,
  keyOf,
  type RecordKind,
  type RecordOf,
} from './records.js';
import { StateMetrics } from './state-metrics.js';
import {
  RestoredStateError,
  RestoredStateKeeper,
  describeRestored,
  type AcceptedState,
  type HeldByAgent,
} from './restored-state.js';
import { Transaction, type EventStamp } from './transaction.js';
import { ViewFollower, type ChangeListener } from './view-follower.js';
import type { ClusterView, Stored } from './view.js';

export type { ChangeListener };

/** Needs of {@link openClusterState}. */
export interface ClusterStateOptions {
  readonly store: StateStore;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  /** Name of this coordinator, kept in the leader record. */
  readonly holder: string;
  /** Default: nothing is measured. */
  readonly meter?: Meter;
  /** Default: nothing is traced. */
  readonly tracer?: Tracer;
}

/**
 * Reads the whole store, takes the leadership with a new epoch, and follows the store from there.
 * @throws kind `precondition` when the store was written by a layout this version does not know,
 *   `internal` naming a record that cannot be read, `conflict` when others keep taking the
 *   leadership meanwhile.
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

/**
 * The typed state of the cluster: a view that is up to date with our own writes, and transactions
 * over it.
 */
export class ClusterState {
  private readonly follower: ViewFollower;
  private cluster: ClusterRecord | undefined;
  private leadership: Stored<bigint> | undefined;
  private readonly loss: LeadershipLoss;
  private eventCount = 0;
  private readonly stamp: EventStamp;
  private readonly metrics: StateMetrics;
  private readonly restoration: RestoredStateKeeper;

  constructor(private readonly options: ClusterStateOptions) {
    this.follower = new ViewFollower(options.store, options.log);
    this.loss = new LeadershipLoss(options.log);
    this.restoration = new RestoredStateKeeper({
      view: this.follower.view,
      clock: options.clock,
      log: options.log,
      epoch: () => this.epoch,
      transaction: () => this.transaction(),
      commit: (transaction) => this.write(transaction),
    });
    this.follower.subscribe(() => this.followLeader());
    this.stamp = {
      nextId: () => eventId(this.epoch, this.eventCount++),
      nowMs: () => options.clock.wallTime(),
    };
    this.metrics = new StateMetrics(options.meter ?? noMeter, options.clock, async () => ({
      store: await options.store.revision(),
      view: this.follower.view.revision,
    }));
  }

  /**
   * The newest state, including every write that was acknowledged to us. Read it and plan without
   * waiting in between.
   */
  view(): ClusterView {
    return this.follower.view;
  }

  /** Identity of this cluster, made once with its store. */
  get clusterId(): string {
    return this.cluster?.clusterId ?? '';
  }

  /** Number of our leadership; grows with each start. */
  get epoch(): bigint {
    return this.leadership?.value ?? 0n;
  }

  /**
   * Nobody has taken the leadership from us, as far as the view has come. Every commit makes sure
   * of it.
   */
  get isLeading(): boolean {
    if (this.leadership === undefined || this.loss.error !== undefined) return false;
    return this.follower.view.get('leader', LEADER_KEY)?.value.epoch === this.leadership.value;
  }

  /**
   * Calls `listener` once, when another coordinator has taken the leadership: from then on every
   * commit is refused, and the view grows stale.
   * @returns Ends the subscription.
   */
  onLeadershipLost(listener: (reason: LeadershipLostError) => void): () => void {
    return this.loss.onLost(listener);
  }

  /** The view follows the store; false once that has failed for good. */
  get isFollowing(): boolean {
    return this.follower.failure === undefined;
  }

  /**
   * What agents hold proves that the store went back in time: nothing is decided on it. Undefined
   * when nothing does, or when an operator has accepted the state.
   */
  get restored(): RestoredState | undefined {
    return this.restoration.found;
  }

  /** Why nothing is decided, for people; undefined as long as the store is believed. */
  get restoredReason(): string | undefined {
    const { restored } = this;
    return restored === undefined ? undefined : describeRestored(restored, this);
  }

  /** The newest revision that an order can have now; as agents are told it. */
  get orderRevision(): bigint {
    return this.restoration.orderRevision;
  }

  /** The revision of an order, as agents are told it. @param revision - As a record has it. */
  toOrderRevision(revision: Revision): bigint {
    return revision + this.restoration.offset;
  }

  /**
   * The newest revision of an order that leaderships up to and with `epoch` can have given. 0: it
   * is not known which.
   */
  newestOrderOf(epoch: bigint): bigint {
    return this.restoration.newestOrderOf(epoch);
  }

  /** An agent holds what this store has never given: from here on {@link restored}. */
  noticeNewer(held: HeldByAgent): void {
    this.restoration.notice(held);
  }

  /** Makes a restored state the truth again. @returns Undefined when there is nothing to accept. */
  acceptRestored(): Promise<AcceptedState | undefined> {
    return this.restoration.accept();
  }

  /** Starts a transaction that holds only while we lead. */
  transaction(): Transaction {
    const transaction = new Transaction(this.stamp);
    if (this.leadership !== undefined) transaction.require('leader', LEADER_KEY, this.leadership);
    return transaction;
  }

  /**
   * Commits, and resolves once the view shows it.
   * @throws `RevisionConflictError` when a record was changed since it was read, and the view shows
   *   that change: read and plan again. Kind `unavailable` leaves it unknown whether it was
   *   committed, but for {@link LeadershipLostError}. {@link RestoredStateError} while the store is
   *   known to have gone back in time.
   */
  async commit(transaction: Transaction): Promise<Revision> {
    const { restored } = this;
    if (restored !== undefined) throw new RestoredStateError(restored, this);
    return this.write(transaction);
  }

  /**
   * Commits what was seen, where {@link commit} commits what was decided: also while the store is
   * known to have gone back in time. @throws as {@link commit}, but for that.
   */
  write(transaction: Transaction): Promise<Revision> {
    const { tracer = noTracer } = this.options;
    const work = (): Promise<Revision> => this.commitNow(transaction);
    return tracer.run('commit', { writes: transaction.size }, () => this.metrics.commit(work));
  }

  private async commitNow(transaction: Transaction): Promise<Revision> {
    if (this.follower.failure !== undefined) throw this.follower.failure;
    if (this.loss.error !== undefined) throw this.loss.error;
    try {
      const { revision } = await this.options.store.txn(
        transaction.compares(),
        transaction.operations(),
      );
      await this.follower.reached(revision);
      return revision;
    } catch (reason) {
      if (!(reason instanceof RevisionConflictError)) throw reason;
      if (reason.scope === keyOf('leader', LEADER_KEY) && (await this.isTaken()))
        throw this.loss.note(this.epoch, reason);
      const { changedAt } = reason;
      await this.follower.reached(
        typeof changedAt === 'bigint' ? changedAt : await this.options.store.revision(),
      );
      throw reason; // also while our own leadership goes on with another epoch: then plan again
    }
  }

  /**
   * Reads from the store whether another coordinator leads. The view cannot tell: no watch of this
   * process reports what another process wrote.
   */
  private async isTaken(): Promise<boolean> {
    const entry = await this.options.store.get(keyOf('leader', LEADER_KEY));
    if (this.leadership === undefined || entry?.modRevision === this.leadership.revision)
      return false;
    return entry === undefined || !this.isOurs(decodeRecord('leader', LEADER_KEY, entry.value));
  }

  /** Our own leadership goes on with another epoch when a restored state is accepted. */
  private isOurs(leader: LeaderRecord): boolean {
    return (
      leader.epoch === this.leadership?.value ||
      this.restoration.isAcceptedBy(leader, this.options.holder)
    );
  }

  /** @returns Ends the subscription. */
  subscribe(listener: ChangeListener): () => void {
    return this.follower.subscribe(listener);
  }

  /**
   * Calls `listener` once, when the view no longer follows the store, with the reason. @returns
   * Ends the subscription.
   */
  onEnd(listener: (reason: CloudlessError) => void): () => void {
    return this.follower.onEnd(listener);
  }

  /**
   * What the store's history says of some kinds of records, in order and without gap, from `after`
   * on and without end. Each revision comes, also one that changed none of these kinds. Ends when
   * the signal is aborted.
   * @throws kind `compacted` when the history does not reach back so far or, with another message,
   *   not yet so far; `unavailable` when the view ends.
   */
  changesAfter(
    after: Revision,
    kinds: readonly RecordKind[],
    signal: StopSignal,
  ): AsyncGenerator<HistoricChanges> {
    return changesAfter(
      { store: this.options.store, follower: this.follower },
      after,
      kinds,
      signal,
    );
  }

  /**
   * Resolves when the view shows `revision`. @throws kind `compacted` when the store has not come
   * to it.
   */
  checkRevision(revision: Revision): Promise<void> {
    return checkRevision({ store: this.options.store, follower: this.follower }, revision);
  }

  /** All records of a kind as of an older revision, by id. @throws kind `compacted`. */
  recordsAt<Kind extends RecordKind>(
    kind: Kind,
    revision: Revision,
  ): Promise<ReadonlyMap<string, RecordOf<Kind>>> {
    return recordsAt(this.options.store, kind, revision);
  }

  /**
   * Resolves when the view shows `revision` or a later one. @throws kind `unavailable` when it
   * never will.
   */
  reached(revision: Revision): Promise<void> {
    return this.follower.reached(revision);
  }

  /**
   * All of the store at its present revision, as the bytes of a backup. @returns What it came to.
   */
  backup(): AsyncGenerator<Uint8Array, SnapshotSummary> {
    return exportSnapshot(this.options.store, {
      clusterId: this.clusterId,
      schemaVersion: SCHEMA_VERSION,
    });
  }

  async start(): Promise<void> {
    await this.refuseOtherLayouts();
    await this.follower.start();
    await this.untilNoConflict(() => this.ensureCluster());
    await this.untilNoConflict(() => this.lead());
  }

  /** Stops following. The store stays open: it belongs to the caller. */
  close(): Promise<void> {
    this.metrics.close();
    return this.follower.close();
  }

  /** Before anything else is read: another layout may not be readable at all. */
  private async refuseOtherLayouts(): Promise<void> {
    const entry = await this.options.store.get(keyOf('meta', CLUSTER_ID_KEY));
    if (entry === undefined) return;
    const { schemaVersion } = decodeRecord('meta', CLUSTER_ID_KEY, entry.value);
    if (schemaVersion === SCHEMA_VERSION) return;
    throw new CloudlessError(
      'precondition',
      `the store has layout ${schemaVersion} and this version reads layout ${SCHEMA_VERSION}; start the version that wrote it`,
    );
  }

  private async ensureCluster(): Promise<void> {
    const { clock, random } = this.options;
    this.cluster = this.follower.view.get('meta', CLUSTER_ID_KEY)?.value;
    if (this.cluster !== undefined) return;
    const made = create(ClusterRecordSchema, {
      clusterId: randomHex(random, CLUSTER_ID_BYTES),
      schemaVersion: SCHEMA_VERSION,
      createdAt: timestampFromMs(clock.wallTime()),
    });
    await this.commit(
      this.transaction()
        .require('meta', CLUSTER_ID_KEY, 'absent')
        .put('meta', CLUSTER_ID_KEY, made),
    );
    this.cluster = made;
  }

  private async lead(): Promise<void> {
    const before = this.follower.view.get('leader', LEADER_KEY);
    const epoch = (before?.value.epoch ?? 0n) + 1n;
    const record = this.restoration.succeed(before, epoch, this.options.holder);
    const transaction = new Transaction(this.stamp)
      .require('leader', LEADER_KEY, before ?? 'absent')
      .put('leader', LEADER_KEY, record);
    const revision = await this.write(transaction);
    this.leadership = { value: epoch, revision };
  }

  /** Subscribed before all other listeners, so that they see the current leadership. */
  private followLeader(): void {
    const leader = this.follower.view.get('leader', LEADER_KEY);
    if (leader === undefined) return;
    if (this.leadership !== undefined && !this.isOurs(leader.value))
      this.loss.note(this.leadership.value);
    if (!this.restoration.isAcceptedBy(leader.value, this.options.holder)) return;
    this.leadership = { value: leader.value.epoch, revision: leader.revision };
    this.restoration.settle();
  }

  /**
   * Coordinators may start together on one store: the one that loses a race reads what the other
   * wrote and goes on.
   */
  private async untilNoConflict(attemptOnce: () => Promise<void>): Promise<void> {
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await attemptOnce();
      } catch (reason) {
        if (errorKindOf(reason) !== 'conflict' || attempt >= MAX_STARTS) throw reason;
        await this.reached(await this.options.store.revision());
      }
    }
  }
}

const CLUSTER_ID_BYTES = 8;
/** More coordinators than this do not start together. */
const MAX_STARTS = 10;
