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
  /** Name of this coordinator for the leader record. */
  readonly holder: string;
  readonly log: Log;
}

/** The leadership of this coordinator: its epoch, the condition of its commits, and its loss. */
export class Leadership {
  private readonly loss: LeadershipLossRecord;
  /** Epoch of the leadership, and the revision of its leader record. */
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

  /** Why the leadership was lost; undefined while it was not. */
  get lossError(): LeadershipLostError | undefined {
    return this.loss.error;
  }

  /**
   * Calls `listener` once when the leadership is lost, immediately when it already is.
   * @returns Ends the subscription.
   */
  onLost(listener: (reason: LeadershipLostError) => void): () => void {
    return this.loss.onLost(listener);
  }

  /** Adds the condition to a transaction that this coordinator leads. */
  requireIn(transaction: Transaction): Transaction {
    return this.current === undefined
      ? transaction
      : transaction.require('leader', LEADER_KEY, this.current);
  }

  /**
   * Takes the leadership with the next epoch.
   * @param transaction - Empty and without a condition.
   * @throws Kind `conflict` when another coordinator takes it at the same time.
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
    if (!restoredState.isAcceptedBy(leader.value, holder)) return;
    this.current = { value: leader.value.epoch, revision: leader.revision };
    restoredState.finishAcceptance();
  }

  /**
   * Reads from the store whether a conflict with the leader record means that the leadership is
   * lost. The view cannot tell: the watch of this process does not report writes of another one.
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

  /** Accepting a restored state continues our leadership with a higher epoch. */
  private isOurs(leader: LeaderRecord): boolean {
    return (
      leader.epoch === this.current?.value ||
      this.deps.restoredState.isAcceptedBy(leader, this.deps.holder)
    );
  }
}
