import type { LeaderRecord } from '@cloudless/api/store';
import type { Log } from '@cloudless/base';
import type { Revision, StateStore } from '@cloudless/state-store';
import { LEADER_KEY, decodeRecord, toKey } from '../records/records.js';
import type { Transaction } from '../transaction/transaction.js';
import type { IndexedView, Stored } from '../view/view.js';
import { LeadershipLossRecord, type LeadershipLostError } from './leadership-lost.js';
import type { RestoredStateTracker } from './restored-state.js';

export interface LeadershipDeps {
  readonly store: StateStore;
  readonly view: IndexedView;
  readonly restoredState: RestoredStateTracker;
  /** Name of this coordinator, stored in the leader record. */
  readonly holder: string;
  readonly log: Log;
}

/** The leadership of this coordinator: its epoch, the condition of its commits, and its loss. */
export class Leadership {
  private readonly loss: LeadershipLossRecord;
  /** Epoch of the leadership with the revision of its leader record; undefined before `take`. */
  private current: Stored<bigint> | undefined;

  constructor(private readonly deps: LeadershipDeps) {
    this.loss = new LeadershipLossRecord(deps.log);
  }

  /** The epoch of this leadership; 0 before it was taken. */
  get epoch(): bigint {
    return this.current?.value ?? 0n;
  }

  /** False once the view shows that another coordinator took the leadership. */
  get isLeading(): boolean {
    if (this.current === undefined || this.loss.error !== undefined) return false;
    return this.leaderRecord?.value.epoch === this.current.value;
  }

  /** The error with which commits fail after the leadership was lost; undefined before the loss. */
  get lossError(): LeadershipLostError | undefined {
    return this.loss.error;
  }

  /**
   * Calls `listener` once when the leadership is lost, immediately when it already is.
   * @returns A function that ends the subscription.
   */
  onLost(listener: (reason: LeadershipLostError) => void): () => void {
    return this.loss.onLost(listener);
  }

  /**
   * Adds the condition that this coordinator still leads. Adds nothing before the leadership is
   * taken.
   */
  requireIn(transaction: Transaction): Transaction {
    return this.current === undefined
      ? transaction
      : transaction.require('leader', LEADER_KEY, this.current);
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
    const before = this.leaderRecord;
    const epoch = (before?.value.epoch ?? 0n) + 1n;
    const { restoredState, holder } = this.deps;
    transaction
      .require('leader', LEADER_KEY, before ?? 'absent')
      .put('leader', LEADER_KEY, restoredState.createLeaderRecord(before, epoch, holder));
    this.current = { value: epoch, revision: await commit(transaction) };
  }

  /** Follows the leader record of the view: detects a loss, and continues after an acceptance. */
  followView(): void {
    const leader = this.leaderRecord;
    if (leader === undefined) return;
    if (this.current !== undefined && !this.isOurs(leader.value))
      this.loss.record(this.current.value);
    const { restoredState, holder } = this.deps;
    if (!restoredState.isAcceptanceRecord(leader.value, holder)) return;
    this.current = { value: leader.value.epoch, revision: leader.revision };
    restoredState.finishAcceptance();
  }

  /**
   * Decides whether a conflict on the leader record means that the leadership is lost. Reads the
   * leader record from the store, because the watch that feeds the view may not report writes of
   * another process.
   * @param conflict - The cause of the returned error.
   * @returns The error of the loss; undefined when this coordinator still leads.
   */
  async findLoss(conflict: unknown): Promise<LeadershipLostError | undefined> {
    const entry = await this.deps.store.get(toKey('leader', LEADER_KEY));
    if (this.current === undefined || entry?.modRevision === this.current.revision)
      return undefined;
    if (entry !== undefined && this.isOurs(decodeRecord('leader', LEADER_KEY, entry.value)))
      return undefined;
    return this.loss.record(this.epoch, conflict);
  }

  private get leaderRecord(): Stored<LeaderRecord> | undefined {
    return this.deps.view.get('leader', LEADER_KEY);
  }

  /**
   * Returns true for the leader record of this leadership, also for the record with a higher epoch
   * that accepting a restored state wrote.
   */
  private isOurs(leader: LeaderRecord): boolean {
    return (
      leader.epoch === this.current?.value ||
      this.deps.restoredState.isAcceptanceRecord(leader, this.deps.holder)
    );
  }
}
