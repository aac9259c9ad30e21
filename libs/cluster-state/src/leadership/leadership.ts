import type { LeaderRecord } from '@cloudless/api/store';
import { errorFields, errorMessageOf, type Clock, type Log } from '@cloudless/base';
import type { Revision, StateStore } from '@cloudless/state-store';
import { LEADER_KEY, decodeRecord, toKey } from '../records/records.js';
import type { Transaction } from '../transaction/transaction.js';
import type { IndexedView, Stored } from '../view/view.js';
import { LeadershipLostError, NotLeaderError, type KnownLeader } from './leadership-lost.js';
import { MutableTerm, type LeadershipTerm } from './leadership-term.js';
import { createLeaseEndedCause, createOtherLeaderCause } from './loss-causes.js';
import type { RestoredStateTracker } from './restored-state.js';

/**
 * How a coordinator becomes leader. `takeAtStart`: it takes the leadership from whoever has it when
 * it opens the store, and keeps it until another one does; for stores that one process opens at a
 * time. `follow`: it follows the store, and leads only after an election.
 */
export type LeadershipMode = 'takeAtStart' | 'follow';

/** `leader`: this coordinator may commit, order and decide. `follower`: it only reads. */
export type CoordinatorRole = 'leader' | 'follower';

/** A coordinator became leader in a new term, or its term has ended. */
export type RoleChange =
  | { readonly role: 'leader'; readonly term: LeadershipTerm }
  | { readonly role: 'follower'; readonly reason: LeadershipLostError };

export interface LeadershipDeps {
  readonly store: Pick<StateStore, 'get'>;
  readonly view: IndexedView;
  readonly clock: Clock;
  readonly restoredState: RestoredStateTracker;
  readonly mode: LeadershipMode;
  /** Name of this coordinator, stored in the leader record. */
  readonly holder: string;
  readonly log: Log;
}

/** The terms of this coordinator, and what it knows about the leader. */
export class Leadership {
  /** The newest term of this coordinator, also after its end. */
  private latest: MutableTerm | undefined;
  private readonly listeners = new Set<(change: RoleChange) => void>();

  constructor(private readonly deps: LeadershipDeps) {}

  /** The epoch of the newest term of this coordinator; 0 before its first. */
  get epoch(): bigint {
    return this.latest?.epoch ?? 0n;
  }

  /** The newest term of this coordinator, also after its end; undefined before its first. */
  get newestTerm(): MutableTerm | undefined {
    return this.latest;
  }

  /** The term in which this coordinator leads now. */
  get activeTerm(): MutableTerm | undefined {
    return this.latest?.isActive === true ? this.latest : undefined;
  }

  /** The leader that this coordinator knows; undefined when it knows none. */
  get knownLeader(): KnownLeader | undefined {
    const record = this.leaderRecord?.value;
    if (this.activeTerm !== undefined || this.deps.mode === 'takeAtStart')
      return record && toKnownLeader(record);
    const lease = this.deps.view.get('leaderlease', LEADER_KEY)?.value;
    if (lease === undefined) return undefined;
    // Accepting a restored state raises the epoch of the leader record only.
    return toKnownLeader(record?.holder === lease.holder ? record : lease);
  }

  /**
   * Calls `listener` with each change of the role from now on.
   * @returns A function that ends the subscription.
   */
  onRoleChange(listener: (change: RoleChange) => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /**
   * Takes the leadership with the next epoch.
   * @param transaction - Empty and without a condition.
   * @param commit - Commits the transaction and resolves with its revision.
   * @throws kind `conflict` when another coordinator takes the leadership at the same time.
   */
  async take(
    transaction: Transaction,
    commit: (transaction: Transaction) => Promise<Revision>,
  ): Promise<void> {
    const { epoch, record, before } = this.createNextRecord();
    transaction.require('leader', LEADER_KEY, before ?? 'absent').put('leader', LEADER_KEY, record);
    this.begin({ epoch, revision: await commit(transaction) }, Infinity);
  }

  /**
   * Creates the leader record of the next leadership.
   * @returns Also the record that the next one replaces, and the epoch of the next one.
   */
  createNextRecord(
    identity: { readonly address: string; readonly coordinatorId: string } = NO_ID,
  ): {
    readonly before: Stored<LeaderRecord> | undefined;
    readonly epoch: bigint;
    readonly record: LeaderRecord;
  } {
    const { restoredState, holder } = this.deps;
    const before = this.leaderRecord;
    const epoch = (before?.value.epoch ?? 0n) + 1n;
    const record = restoredState.createLeaderRecord(before, { epoch, holder, ...identity });
    return { before, epoch, record };
  }

  /**
   * Begins a term, after its leader record was committed and the view shows that record.
   * @param actUntilMs - Monotonic time until which this coordinator may act.
   */
  begin(
    leader: { readonly epoch: bigint; readonly revision: Revision },
    actUntilMs: number,
  ): MutableTerm {
    const term = new MutableTerm(this.deps.clock, leader, actUntilMs);
    this.latest = term;
    this.deps.restoredState.beginTerm();
    this.deps.log.info('leadership gained', { epoch: leader.epoch });
    this.notify({ role: 'leader', term });
    this.followView(); // the view may show a later leader already
    return term;
  }

  /**
   * Ends a term; has no effect on a term that has ended.
   * @param cause - Cause of the end, for the log and the error. Default: the time of the term is
   *   over.
   * @returns The error with which commits of the term fail.
   */
  endTerm(term: MutableTerm, cause: unknown = term.createLimitCause()): LeadershipLostError {
    if (term.lossError !== undefined) return term.lossError;
    const leader = this.knownLeader;
    const error = new LeadershipLostError(
      term.epoch,
      cause,
      leader?.epoch === term.epoch ? undefined : leader,
    );
    const { log, mode } = this.deps;
    const level = mode === 'takeAtStart' ? 'error' : 'warn'; // the coordinator ends, or follows
    log[level]('leadership lost', {
      epoch: term.epoch,
      cause: errorMessageOf(cause),
      ...errorFields(error),
    });
    term.end(error);
    this.notify({ role: 'follower', reason: error });
    return error;
  }

  /**
   * Returns the error with which a commit fails now; undefined when this coordinator may commit
   * under `term`.
   */
  findRefusal(term: MutableTerm | undefined): NotLeaderError | undefined {
    if (term === undefined) return new NotLeaderError(this.knownLeader);
    return term.isActive ? undefined : this.endTerm(term);
  }

  /** Follows the leader record of the view: detects a loss, and continues after an acceptance. */
  followView(): void {
    const term = this.latest;
    const leader = this.leaderRecord;
    if (leader === undefined || term === undefined || term.lossError !== undefined) return;
    if (leader.revision < term.revision) return; // not yet the record of this term
    const { restoredState, holder, mode, view, clock } = this.deps;
    const lease = view.get('leaderlease', LEADER_KEY)?.value;
    if (!this.isOurs(term, leader.value)) this.endTerm(term, createOtherLeaderCause(leader.value));
    else if (mode === 'follow' && lease?.holder !== holder)
      this.endTerm(
        term,
        lease === undefined
          ? createLeaseEndedCause(term.deadlineMs - clock.now())
          : createOtherLeaderCause(lease),
      );
    if (!restoredState.isAcceptanceRecord(leader.value, holder)) return;
    term.continueWith({ epoch: leader.value.epoch, revision: leader.revision });
    restoredState.finishAcceptance();
  }

  /**
   * Decides whether a conflict on the leader record means that a term has ended. Reads the leader
   * record from the store, because the watch that feeds the view may not report writes of another
   * process.
   * @param conflict - The cause of the returned error.
   * @returns The error of the loss; undefined when the term goes on.
   */
  async findLoss(term: MutableTerm, conflict: unknown): Promise<LeadershipLostError | undefined> {
    if (term.lossError !== undefined) return term.lossError;
    const entry = await this.deps.store.get(toKey('leader', LEADER_KEY));
    if (entry?.modRevision === term.revision) return undefined;
    const leader = entry && decodeRecord('leader', LEADER_KEY, entry.value);
    if (leader !== undefined && this.isOurs(term, leader)) return undefined;
    return this.endTerm(term, createOtherLeaderCause(leader, conflict));
  }

  private get leaderRecord(): Stored<LeaderRecord> | undefined {
    return this.deps.view.get('leader', LEADER_KEY);
  }

  /**
   * Returns true for the leader record of a term, also for the record with a higher epoch that
   * accepting a restored state wrote.
   */
  private isOurs(term: MutableTerm, leader: LeaderRecord): boolean {
    const { restoredState, holder } = this.deps;
    return leader.epoch === term.epoch || restoredState.isAcceptanceRecord(leader, holder);
  }

  private notify(change: RoleChange): void {
    for (const listener of [...this.listeners]) listener(change);
  }
}

const NO_ID = { address: '', coordinatorId: '' };

function toKnownLeader({ epoch, address, coordinatorId }: KnownLeader): KnownLeader {
  return { epoch, address, coordinatorId };
}
