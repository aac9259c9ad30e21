import { create } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { ClusterRecordSchema, type ClusterRecord, type RestoredState } from '@cloudless/api/store';
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
import {
  streamChangesAfter,
  checkRevision,
  readRecordsAt,
  type HistoricChanges,
} from './history.js';
import type { LeadershipLostError } from './leadership/leadership-lost.js';
import { Leadership } from './leadership/leadership.js';
import {
  CLUSTER_ID_KEY,
  LEADER_KEY,
  SCHEMA_VERSION,
  decodeRecord,
  toEventId,
  toKey,
  type RecordKind,
  type RecordOf,
} from './records/records.js';
import { StateMetrics } from './state-metrics.js';
import {
  RestoredStateError,
  RestoredStateTracker,
  describeRestoredState,
  type OrderState,
  type AgentOrderState,
} from './leadership/restored-state.js';
import { Transaction, type EventStamp } from './transaction/transaction.js';
import { ViewFollower, type ChangeListener } from './view/view-follower.js';
import type { ClusterView } from './view/view.js';

export type { ChangeListener };

export interface ClusterStateOptions {
  readonly store: StateStore;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  /** Name of this coordinator, stored in the leader record. */
  readonly holder: string;
  /** Default: no metrics. */
  readonly meter?: Meter;
  /** Default: no traces. */
  readonly tracer?: Tracer;
}

/**
 * Reads the whole store, takes the leadership with a new epoch, and follows the store from there
 * on. The caller closes the state; the store stays open and belongs to the caller.
 * @throws kind `precondition` when the store has a layout that this version does not support,
 *   `internal` naming a record that cannot be read, `conflict` when other coordinators keep taking
 *   the leadership during the start.
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
 * The typed state of the cluster: a view that includes the process's own writes, and transactions.
 */
export class ClusterState {
  private readonly follower: ViewFollower;
  private cluster: ClusterRecord | undefined;
  private readonly leadership: Leadership;
  private eventCount = 0;
  private readonly eventStamp: EventStamp;
  private readonly metrics: StateMetrics;
  private readonly restoredState: RestoredStateTracker;

  constructor(private readonly options: ClusterStateOptions) {
    this.follower = new ViewFollower(options.store, options.log);
    this.restoredState = new RestoredStateTracker({
      view: this.follower.view,
      clock: options.clock,
      log: options.log,
      epoch: () => this.epoch,
      transaction: () => this.transaction(),
      commitObserved: (transaction) => this.commitObserved(transaction),
    });
    this.leadership = new Leadership({
      store: options.store,
      view: this.follower.view,
      restoredState: this.restoredState,
      holder: options.holder,
      log: options.log,
    });
    // The first subscription, so that all later listeners see the current leadership.
    this.follower.subscribe(() => this.leadership.followView());
    this.eventStamp = {
      nextId: () => toEventId(this.epoch, this.eventCount++),
      nowMs: () => options.clock.wallTime(),
    };
    this.metrics = new StateMetrics(
      options.meter ?? noMeter,
      options.clock,
      async () => ({
        store: await options.store.revision(),
        view: this.follower.view.revision,
      }),
      () => this.follower.recordsDecoded,
    );
  }

  /**
   * The newest state, including every acknowledged write of this process. The view changes between
   * turns of the event loop: read the view and plan without an `await` in between.
   */
  view(): ClusterView {
    return this.follower.view;
  }

  /** The id of this cluster, 16 hexadecimal digits, created when its store is first opened. */
  get clusterId(): string {
    return this.cluster?.clusterId ?? '';
  }

  /** The epoch of this leadership. Each start takes a higher one. */
  get epoch(): bigint {
    return this.leadership.epoch;
  }

  /**
   * False once the view shows that another coordinator took the leadership. Every commit verifies
   * the leadership itself.
   */
  get isLeading(): boolean {
    return this.leadership.isLeading;
  }

  /**
   * Calls `listener` once when another coordinator has taken the leadership, immediately when that
   * has happened already. From then on every commit is refused, and the view becomes stale.
   * @returns A function that ends the subscription.
   */
  onLeadershipLost(listener: (reason: LeadershipLostError) => void): () => void {
    return this.leadership.onLost(listener);
  }

  /** True while the view follows the store; false once the watch has failed for good. */
  get isFollowing(): boolean {
    return this.follower.failure === undefined;
  }

  /**
   * Set when agents hold epochs or order revisions that this store has never issued: the store was
   * rolled back, for example from a backup. Commits of decisions are then refused. Undefined while
   * no agent has reported such orders, and after an operator accepted the state.
   */
  get storeRolledBack(): RestoredState | undefined {
    return this.restoredState.storeRolledBack;
  }

  /** The text of {@link storeRolledBack} for operators; undefined when that property is. */
  get storeRolledBackReason(): string | undefined {
    const { storeRolledBack } = this;
    return storeRolledBack === undefined ? undefined : describeRestoredState(storeRolledBack, this);
  }

  /** The newest order revision that an agent can hold now. */
  get orderRevision(): bigint {
    return this.restoredState.orderRevision;
  }

  /**
   * Converts the revision that a record names into the order revision that agents receive.
   * @param revision - A revision of the store.
   */
  toOrderRevision(revision: Revision): bigint {
    return revision + this.restoredState.orderRevisionOffset;
  }

  /**
   * The newest order revision that leaderships up to and including `epoch` can have issued.
   * @param epoch - For 0 (unknown) and for the current or a later epoch, the result is
   *   {@link orderRevision}.
   */
  getNewestOrderRevision(epoch: bigint): bigint {
    return this.restoredState.getNewestOrderRevision(epoch);
  }

  /**
   * Records that an agent holds an epoch or order revision that this store has never issued. Sets
   * {@link storeRolledBack}.
   */
  reportNewerState(held: AgentOrderState): void {
    this.restoredState.reportNewerState(held);
  }

  /**
   * Accepts a rolled-back store as the current state: this coordinator commits decisions again, and
   * agents accept its orders.
   * @returns The new epoch and order revision; undefined when there is nothing to accept.
   */
  acceptRestoredState(): Promise<OrderState | undefined> {
    return this.restoredState.accept();
  }

  /** Creates an empty transaction that commits only while this coordinator leads. */
  transaction(): Transaction {
    return this.leadership.requireIn(new Transaction(this.eventStamp));
  }

  /**
   * Commits a decision, and resolves once the view shows it.
   * @throws `RevisionConflictError` when a required record has changed; the view shows the change
   *   by then, so read and plan again. Kind `unavailable` when the outcome is unknown, except for
   *   {@link LeadershipLostError}, which means that nothing was committed.
   *   {@link RestoredStateError} while the store is known to have been rolled back.
   */
  async commit(transaction: Transaction): Promise<Revision> {
    const { storeRolledBack } = this;
    if (storeRolledBack !== undefined) throw new RestoredStateError(storeRolledBack, this);
    return this.commitObserved(transaction);
  }

  /**
   * Commits an observation, such as a status report. Unlike {@link commit}, it is also allowed
   * while the store is known to have been rolled back.
   * @throws The errors of {@link commit}, except `RestoredStateError`.
   */
  commitObserved(transaction: Transaction): Promise<Revision> {
    const { tracer = noTracer } = this.options;
    const work = (): Promise<Revision> => this.commitToStore(transaction);
    return tracer.run('commit', { writes: transaction.size }, () =>
      this.metrics.measureCommit(work),
    );
  }

  private async commitToStore(transaction: Transaction): Promise<Revision> {
    if (this.follower.failure !== undefined) throw this.follower.failure;
    if (this.leadership.lossError !== undefined) throw this.leadership.lossError;
    const operations = transaction.toOperations();
    this.metrics.countWrites(operations);
    const forget = this.follower.expect(transaction.listWritten());
    try {
      const { revision } = await this.options.store.txn(transaction.toCompares(), operations);
      await this.follower.waitForRevision(revision);
      return revision;
    } catch (reason) {
      if (!(reason instanceof RevisionConflictError)) throw reason;
      if (reason.scope === toKey('leader', LEADER_KEY)) {
        const loss = await this.leadership.findLoss(reason);
        if (loss !== undefined) throw loss;
      }
      const { changedAt } = reason;
      await this.follower.waitForRevision(
        typeof changedAt === 'bigint' ? changedAt : await this.options.store.revision(),
      );
      // Also when accepting a restored state gave this coordinator a higher epoch.
      throw reason;
    } finally {
      forget();
    }
  }

  /**
   * Calls `listener` with every batch of changes after the view shows the batch.
   * @returns A function that ends the subscription.
   */
  subscribe(listener: ChangeListener): () => void {
    return this.follower.subscribe(listener);
  }

  /**
   * Calls `listener` once with the reason when the view stops following the store, immediately when
   * it already has.
   * @returns A function that ends the subscription.
   */
  onEnd(listener: (reason: CloudlessError) => void): () => void {
    return this.follower.onEnd(listener);
  }

  /**
   * Streams the changes of some kinds of records after a revision, in order and without gaps, until
   * `signal` is aborted. Every revision is delivered, with an empty list when the revision changed
   * none of these kinds.
   * @param after - The first delivered revision is the next one.
   * @throws kind `compacted` when the history no longer reaches back to `after`, or the store has
   *   not reached it yet; `unavailable` when the view ends.
   */
  changesAfter(
    after: Revision,
    kinds: readonly RecordKind[],
    signal: StopSignal,
  ): AsyncGenerator<HistoricChanges> {
    return streamChangesAfter(
      { store: this.options.store, follower: this.follower },
      after,
      kinds,
      signal,
    );
  }

  /**
   * Resolves when the view shows `revision`.
   * @throws kind `compacted` when the store has not reached the revision yet, `unavailable` when the
   *   view ends.
   */
  checkRevision(revision: Revision): Promise<void> {
    return checkRevision({ store: this.options.store, follower: this.follower }, revision);
  }

  /**
   * All records of a kind as of an older revision, by id.
   * @param pause - Runs after each page of records, so that other work gets its turn. Default: no
   *   pause.
   * @throws kind `compacted` when the store no longer keeps that revision, and the errors of `pause`.
   */
  recordsAt<Kind extends RecordKind>(
    kind: Kind,
    revision: Revision,
    pause: () => Promise<void> = () => Promise.resolve(),
  ): Promise<ReadonlyMap<string, RecordOf<Kind>>> {
    return readRecordsAt(this.options.store, kind, revision, pause);
  }

  /**
   * Resolves when the view shows `revision` or a later one.
   * @throws kind `unavailable` when the view ends before that.
   */
  waitForRevision(revision: Revision): Promise<void> {
    return this.follower.waitForRevision(revision);
  }

  /**
   * Streams a backup of the whole store at its current revision.
   * @returns The bytes; the return value of the generator is a summary.
   */
  backup(): AsyncGenerator<Uint8Array, SnapshotSummary> {
    return exportSnapshot(this.options.store, {
      clusterId: this.clusterId,
      schemaVersion: SCHEMA_VERSION,
    });
  }

  /** Reads the store and takes the leadership. Called once, by {@link openClusterState}. */
  async start(): Promise<void> {
    await this.requireKnownLayout();
    await this.follower.start();
    await this.retryOnConflict(() => this.ensureCluster());
    await this.retryOnConflict(() =>
      this.leadership.take(new Transaction(this.eventStamp), (transaction) =>
        this.commitObserved(transaction),
      ),
    );
  }

  /** Stops following the store. The store stays open, because the caller owns it. */
  close(): Promise<void> {
    this.metrics.close();
    return this.follower.close();
  }

  /** Checks the layout before any other record is read: another layout may not be readable. */
  private async requireKnownLayout(): Promise<void> {
    const entry = await this.options.store.get(toKey('meta', CLUSTER_ID_KEY));
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
    const created = create(ClusterRecordSchema, {
      clusterId: randomHex(random, CLUSTER_ID_BYTES),
      schemaVersion: SCHEMA_VERSION,
      createdAt: timestampFromMs(clock.wallTime()),
    });
    await this.commit(
      this.transaction()
        .require('meta', CLUSTER_ID_KEY, 'absent')
        .put('meta', CLUSTER_ID_KEY, created),
    );
    this.cluster = created;
  }

  /**
   * Retries after a conflict: when several coordinators start on one store, the loser of a race
   * reads the winner's records and continues.
   */
  private async retryOnConflict(attemptOnce: () => Promise<void>): Promise<void> {
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await attemptOnce();
      } catch (reason) {
        if (errorKindOf(reason) !== 'conflict' || attempt >= MAX_STARTS) throw reason;
        await this.waitForRevision(await this.options.store.revision());
      }
    }
  }
}

/** 64 bits: enough that two clusters never get the same id. */
const CLUSTER_ID_BYTES = 8;
/** Most attempts. Each failed attempt means that another coordinator started at the same moment. */
const MAX_STARTS = 10;
