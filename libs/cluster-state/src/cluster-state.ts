import type { RestoredState } from '@cloudless/api/store';
import { assert, type CloudlessError, type StopSignal } from '@cloudless/base';
import { exportSnapshot, type Revision, type SnapshotSummary } from '@cloudless/state-store';
import {
  checkRevision,
  readRecord,
  readRecordsAt,
  streamChangesAfter,
  type HistoricChanges,
} from './history.js';
import type { CandidateIdentity } from './leadership/campaign.js';
import type { LeaderElection } from './leadership/leader-election.js';
import type { KnownLeader, LeadershipLostError } from './leadership/leadership-lost.js';
import type { CoordinatorRole, RoleChange } from './leadership/leadership.js';
import { MutableTerm, type LeadershipTerm } from './leadership/leadership-term.js';
import {
  RestoredStateError,
  type AgentOrderState,
  type OrderState,
} from './leadership/restored-state.js';
import { SCHEMA_VERSION, type RecordKind, type RecordOf } from './records/records.js';
import { StateCore, type ClusterStateOptions } from './state-core.js';
import type { Transaction } from './transaction/transaction.js';
import type { ChangeListener } from './view/view-follower.js';
import type { ClusterView, Stored } from './view/view.js';

export type { ChangeListener, ClusterStateOptions };

/**
 * Reads the whole store and follows it from there on; with `leadership: 'takeAtStart'` (the default)
 * also takes the leadership with a new epoch. The caller closes the state; the store stays open and
 * belongs to the caller.
 * @throws kind `precondition` when the store has a layout that this version does not support,
 *   `internal` naming a record that cannot be read, `conflict` when other coordinators keep taking
 *   the leadership during the start.
 */
export async function openClusterState(options: ClusterStateOptions): Promise<ClusterState> {
  const core = new StateCore(options);
  try {
    await core.start();
  } catch (reason) {
    await core.close();
    throw reason;
  }
  return new ClusterState(core);
}

/**
 * The typed state of the cluster: a view that includes the process's own writes, and transactions.
 */
export class ClusterState {
  /**
   * @param core - What this object shares with those that {@link inTerm} returns.
   * @param term - The only term in which this object commits. Absent: the newest of the coordinator.
   */
  constructor(
    private readonly core: StateCore,
    private readonly term?: MutableTerm,
  ) {}

  /**
   * The newest state, including every acknowledged write of this process. The view changes between
   * turns of the event loop: read the view and plan without an `await` in between.
   */
  view(): ClusterView {
    return this.core.follower.view;
  }

  /** The id of this cluster, 16 hexadecimal digits, created when its store is first opened. */
  get clusterId(): string {
    return this.core.clusterId;
  }

  /**
   * The epoch of the newest leadership of this coordinator, also after its end; 0 before the first.
   * Each leadership has a higher epoch.
   */
  get epoch(): bigint {
    return this.newestTerm?.epoch ?? 0n;
  }

  /** `leader` while this coordinator may commit; a check of the clock, as {@link isLeading}. */
  get role(): CoordinatorRole {
    return this.isLeading ? 'leader' : 'follower';
  }

  /**
   * False once this coordinator knows that its leadership has ended: another one leads, or the lease
   * was not renewed in time. Every commit verifies the leadership itself.
   */
  get isLeading(): boolean {
    return this.newestTerm?.isActive === true;
  }

  /** True when several coordinators may share the store, and elect their leader. */
  get isShared(): boolean {
    return this.core.options.leadership === 'follow';
  }

  /**
   * The leader that this coordinator knows, also when it leads itself; undefined when it knows none.
   * The knowledge of a follower may be late.
   */
  leader(): KnownLeader | undefined {
    return this.core.leadership.knownLeader;
  }

  /**
   * Calls `listener` with each change of the role from now on. The view shows the leader record by
   * then. Must not throw.
   * @returns A function that ends the subscription.
   */
  onRoleChange(listener: (change: RoleChange) => void): () => void {
    return this.core.leadership.onRoleChange(listener);
  }

  /**
   * Takes part in the election of the leader from now on, until the election or this state is
   * closed. Call it once, on a state that was opened with `leadership: 'follow'`.
   * @param identity - Stored in the leader record, for those who look for the leader.
   */
  joinElection(identity: CandidateIdentity): LeaderElection {
    return this.core.joinElection(identity);
  }

  /**
   * The same state for the components of one leadership: `isLeading`, `epoch`, `transaction` and
   * `commit` speak about this term only, also after this coordinator has become leader again.
   * @param term - From {@link onRoleChange}.
   */
  inTerm(term: LeadershipTerm): ClusterState {
    assert(term instanceof MutableTerm, 'the term comes from onRoleChange');
    return new ClusterState(this.core, term);
  }

  /**
   * Calls `listener` once when the newest leadership of this coordinator ends, immediately when it
   * has ended already. From then on every commit is refused. Never called for a coordinator that has
   * not led.
   * @returns A function that ends the subscription.
   */
  onLeadershipLost(listener: (reason: LeadershipLostError) => void): () => void {
    return this.newestTerm?.onEnd(listener) ?? ((): void => undefined);
  }

  /** True while the view follows the store; false once the watch has failed for good. */
  get isFollowing(): boolean {
    return this.core.follower.failure === undefined;
  }

  /**
   * Set when agents hold epochs or order revisions that this store has never issued: the store was
   * rolled back, for example from a backup. Also set after a restore that left its mark, with an
   * empty node id. Commits of decisions are then refused. Undefined without both, and after an
   * operator accepted the state.
   */
  get storeRolledBack(): RestoredState | undefined {
    return this.core.restoredState.storeRolledBack;
  }

  /** The text of {@link storeRolledBack} for operators; undefined when that property is. */
  get storeRolledBackReason(): string | undefined {
    return this.core.restoredState.reason;
  }

  /** The newest order revision that an agent can hold now. */
  get orderRevision(): bigint {
    return this.core.restoredState.orderRevision;
  }

  /**
   * Converts the revision that a record names into the order revision that agents receive.
   * @param revision - A revision of the store.
   */
  toOrderRevision(revision: Revision): bigint {
    return revision + this.core.restoredState.orderRevisionOffset;
  }

  /**
   * The newest order revision that leaderships up to and including `epoch` can have issued.
   * @param epoch - For 0 (unknown) and for the current or a later epoch, the result is
   *   {@link orderRevision}.
   */
  getNewestOrderRevision(epoch: bigint): bigint {
    return this.core.restoredState.getNewestOrderRevision(epoch);
  }

  /**
   * Records that an agent holds an epoch or order revision that this store has never issued. Sets
   * {@link storeRolledBack}. With `leadership: 'follow'` only after the store has confirmed that no
   * newer leader has issued them; a coordinator that does not lead ignores the call.
   */
  reportNewerState(held: AgentOrderState): void {
    this.core.reportNewerState(held, this.newestTerm);
  }

  /**
   * Accepts a rolled-back store as the current state: this coordinator commits decisions again, and
   * agents accept its orders.
   * @returns The new epoch and order revision; undefined when there is nothing to accept.
   */
  acceptRestoredState(): Promise<OrderState | undefined> {
    return this.core.restoredState.accept();
  }

  /** Creates an empty transaction that commits only while the current leadership lasts. */
  transaction(): Transaction {
    return this.core.createTransaction(this.newestTerm);
  }

  /**
   * Commits a decision, and resolves once the view shows it.
   * @throws `RevisionConflictError` when a required record has changed; the view shows the change
   *   by then, so read and plan again. Kind `unavailable` when the outcome is unknown, except for
   *   `NotLeaderError` and its subclass {@link LeadershipLostError}, which mean that nothing
   *   was committed: this coordinator does not lead, or no longer in the term in which the
   *   transaction was made. {@link RestoredStateError} while the store is known to have been rolled
   *   back.
   */
  async commit(transaction: Transaction): Promise<Revision> {
    const { storeRolledBackReason } = this;
    if (storeRolledBackReason !== undefined) throw new RestoredStateError(storeRolledBackReason);
    return this.commitObserved(transaction);
  }

  /**
   * Commits an observation, such as a status report. Unlike {@link commit}, it is also allowed
   * while the store is known to have been rolled back.
   * @throws The errors of {@link commit}, except `RestoredStateError`.
   */
  commitObserved(transaction: Transaction): Promise<Revision> {
    return this.core.commit(transaction);
  }

  /**
   * Calls `listener` with every batch of changes after the view shows the batch.
   * @returns A function that ends the subscription.
   */
  subscribe(listener: ChangeListener): () => void {
    return this.core.follower.subscribe(listener);
  }

  /**
   * Calls `listener` once with the reason when the view stops following the store, immediately when
   * it already has.
   * @returns A function that ends the subscription.
   */
  onEnd(listener: (reason: CloudlessError) => void): () => void {
    return this.core.follower.onEnd(listener);
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
    return streamChangesAfter(this.core.history, after, kinds, signal);
  }

  /**
   * Resolves when the view shows `revision`.
   * @throws kind `compacted` when the store has not reached the revision yet, `unavailable` when the
   *   view ends.
   */
  checkRevision(revision: Revision): Promise<void> {
    return checkRevision(this.core.history, revision);
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
    return readRecordsAt(this.core.options.store, kind, revision, pause);
  }

  /**
   * Reads one record from the store, as committed now: for kinds that the view does not hold.
   * @returns Undefined when there is no such record.
   */
  readRecord<Kind extends RecordKind>(
    kind: Kind,
    id: string,
  ): Promise<Stored<RecordOf<Kind>> | undefined> {
    return readRecord(this.core.options.store, kind, id);
  }

  /**
   * Resolves when the view shows `revision` or a later one.
   * @param signal - Ends the wait.
   * @throws kind `unavailable` when the view ends before that, `StoppedError` when `signal` is
   *   aborted before that.
   */
  waitForRevision(revision: Revision, signal?: StopSignal): Promise<void> {
    return this.core.follower.waitForRevision(revision, signal);
  }

  /**
   * Resolves when the view shows everything that any coordinator had committed before this call.
   * Costs a read of the store's revision, which calls at the same time share.
   * @param signal - Ends the wait.
   * @throws The errors of {@link waitForRevision}; kind `unavailable` or `deadline` when the store
   *   does not answer.
   */
  async waitForNewest(signal?: StopSignal): Promise<void> {
    await this.waitForRevision(await this.core.newestRevision.read(), signal);
  }

  /**
   * Milliseconds since the view is known to have shown everything that was committed. At most a
   * little over 1 s while a follower reaches the store; 0 for a coordinator that took the
   * leadership at its start.
   */
  get viewAgeMs(): number {
    return this.core.viewAgeMs;
  }

  /**
   * Streams a backup of the whole store at its current revision.
   * @returns The bytes; the return value of the generator is a summary.
   */
  backup(): AsyncGenerator<Uint8Array, SnapshotSummary> {
    return exportSnapshot(this.core.options.store, {
      clusterId: this.clusterId,
      schemaVersion: SCHEMA_VERSION,
    });
  }

  /**
   * Stops following the store, for all objects that share this state. The store stays open, because
   * the caller owns it.
   */
  close(): Promise<void> {
    return this.core.close();
  }

  private get newestTerm(): MutableTerm | undefined {
    return this.term ?? this.core.leadership.newestTerm;
  }
}
