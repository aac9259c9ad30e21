import { clone, create } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { Event_Category as Category, Event_Severity as Severity } from '@cloudless/api';
import {
  ClusterRecordSchema,
  ControlRecordSchema,
  LeaderRecordSchema,
  LeadershipSchema,
  RestoredStateSchema,
  type ClusterRecord,
  type LeaderRecord,
  type Leadership,
  type RestoredState,
} from '@cloudless/api/store';
import { CloudlessError, errorFields, errorKindOf, type Clock, type Log } from '@cloudless/base';
import type { Revision } from '@cloudless/state-store';
import { CLUSTER_ID_KEY, LEADER_KEY } from '../records/records.js';
import type { Transaction } from '../transaction/transaction.js';
import type { IndexedView, Stored } from '../view/view.js';

/** The command by which an operator accepts a rolled-back store. */
export const ACCEPT_COMMAND = 'cloudlessctl admin accept-restored-state';

/** An epoch and an order revision that an agent holds. This store has never issued them. */
export interface AgentOrderState {
  readonly nodeId: string;
  readonly epoch: bigint;
  readonly orderRevision: bigint;
}

/**
 * The epoch and the order revision of a coordinator: the current ones, or those from which the
 * coordinator continues after an acceptance.
 */
export interface OrderState {
  readonly epoch: bigint;
  readonly orderRevision: bigint;
}

/**
 * The store was rolled back, or restored from a backup: no decision may be committed until an
 * operator accepts the state.
 */
export class RestoredStateError extends CloudlessError {
  /** @param reason - The text of {@link RestoredStateTracker.reason}. */
  constructor(reason: string) {
    super('STORE_ROLLED_BACK', reason);
  }
}

/**
 * True for the mark that a restore leaves, without a proof: no agent has reported a newer
 * order yet.
 */
function isRestoreMark({ nodeId }: RestoredState): boolean {
  return nodeId === '';
}

/** The text for operators about the mark of a restore: the consequence, and the command to run. */
function describeRestoreMark(): string {
  return (
    'the store was restored from a backup; nothing is started, stopped or changed until an ' +
    `operator accepts this state; when the nodes that still exist are connected, run: ${ACCEPT_COMMAND}`
  );
}

/**
 * The text for operators: what proves the rollback, the consequence, and the command to run.
 * @param current - Epoch and order revision of this coordinator.
 */
export function describeRestoredState(restored: RestoredState, current: OrderState): string {
  const { epoch, orderRevision } = current;
  const { nodeId, highestEpoch, highestOrderRevision } = restored;
  const held = [
    ...(highestEpoch > 0n ? [`epoch ${highestEpoch} (here: ${epoch})`] : []),
    ...(highestOrderRevision > 0n
      ? [`order revision ${highestOrderRevision} (here: ${orderRevision})`]
      : []),
  ];
  return (
    `the store went back in time: node "${nodeId}" holds orders that this store has never issued, ${held.join(' and ')}; nothing is ` +
    `started, stopped or changed until an operator accepts this state; to do so, run: ${ACCEPT_COMMAND}`
  );
}

export interface RestoredStateDeps {
  readonly view: IndexedView;
  readonly clock: Clock;
  readonly log: Log;
  /** The current epoch of this coordinator's leadership. */
  readonly epoch: () => bigint;
  readonly transaction: () => Transaction;
  /** Commits also while the store is known to have been rolled back. */
  readonly commitObserved: (transaction: Transaction) => Promise<Revision>;
}

/**
 * Most earlier leaderships in the leader record, so that the record stays small. An order of a
 * leadership that is older than all of them counts as an order of the leadership just before them.
 */
const MAX_EARLIER = 100;
/**
 * Added to the order revision at an acceptance. More orders than a store can have lost, so that one
 * acceptance covers agents that reconnect later.
 */
const ORDER_REVISION_GAP = 2n ** 40n;
/** Added to the epoch at an acceptance. More leaderships than a store can have lost. */
const EPOCH_GAP = 1_000n;
/**
 * Added to the next sequence number of each workload at an acceptance. More replicas than a workload
 * can have created in the lost part of the history, so that no replica id is used again.
 */
const SEQUENCE_GAP = 1_000_000n;
/** A transaction has at most 100 conditions and 100 writes; the leader record is a condition. */
const MAX_CONTROLS_PER_COMMIT = 80;
/** Most attempts of a commit. A conflict is rare, because the view shows the change by then. */
const MAX_ATTEMPTS = 16;

/**
 * Detects that the store was rolled back (a backup was restored, a disk was swapped) from the
 * orders that agents hold, records this proof in the store, and continues when an operator accepts
 * the state. The proof is a `RestoredState`: the highest epoch and order revision that agents hold.
 * A `RestoredState` without a node is the mark that `cloudlessctl admin restore` leaves in the
 * store; decisions wait for the acceptance of such a state from the first leadership on.
 */
export class RestoredStateTracker {
  /** The newest proof that this coordinator found. It takes effect before it is stored. */
  private reported: RestoredState | undefined;
  private isWriting = false;
  /** Epoch of the acceptance that is being committed. */
  private acceptingEpoch: bigint | undefined;

  constructor(private readonly deps: RestoredStateDeps) {}

  /**
   * The proof that the store was rolled back, or the mark of a restore; undefined without both, or
   * after the acceptance.
   */
  get storeRolledBack(): RestoredState | undefined {
    return this.reported ?? this.clusterRecord?.value.restored;
  }

  /** The text of {@link storeRolledBack} for operators; undefined when that property is. */
  get reason(): string | undefined {
    const { storeRolledBack } = this;
    if (storeRolledBack === undefined) return undefined;
    if (!isRestoreMark(storeRolledBack))
      return describeRestoredState(storeRolledBack, this.currentState);
    return describeRestoreMark();
  }

  /** The newest order revision that an agent can hold now. */
  get orderRevision(): bigint {
    return this.deps.view.revision + this.orderRevisionOffset;
  }

  /** Added to every store revision that an agent receives. */
  get orderRevisionOffset(): bigint {
    return this.clusterRecord?.value.orderRevisionOffset ?? 0n;
  }

  /**
   * The newest order revision that leaderships up to and including `epoch` can have issued.
   * @param epoch - For 0 (unknown) and for the current or a later epoch, the result is
   *   {@link orderRevision}.
   */
  getNewestOrderRevision(epoch: bigint): bigint {
    const leader = this.leaderRecord;
    if (leader === undefined || epoch === 0n || epoch >= leader.value.epoch)
      return this.orderRevision;
    // The order revision of a leadership is the newest that was issued before the leadership began.
    const next = leader.value.earlier.find((leadership) => leadership.epoch > epoch);
    return next?.orderRevision ?? leader.revision + this.orderRevisionOffset;
  }

  /** Records that an agent holds an epoch or order revision that this store has never issued. */
  reportNewerState(held: AgentOrderState): void {
    const { clock, log } = this.deps;
    const known = this.storeRolledBack;
    const before = known === undefined || isRestoreMark(known) ? undefined : known;
    if (
      before !== undefined &&
      held.epoch <= before.highestEpoch &&
      held.orderRevision <= before.highestOrderRevision
    )
      return;
    this.reported = create(RestoredStateSchema, {
      nodeId: before?.nodeId ?? held.nodeId,
      highestEpoch: maxBigint(before?.highestEpoch ?? 0n, held.epoch),
      highestOrderRevision: maxBigint(before?.highestOrderRevision ?? 0n, held.orderRevision),
      noticedAt: before?.noticedAt ?? timestampFromMs(clock.wallTime()),
    });
    if (before === undefined)
      log.error('store went back in time', {
        reason: describeRestoredState(this.reported, this.currentState),
      });
    if (!this.isWriting) void this.persist();
  }

  /** Returns true for the leader record that the running acceptance of this coordinator writes. */
  isAcceptanceRecord({ epoch, holder }: LeaderRecord, ownHolder: string): boolean {
    return epoch === this.acceptingEpoch && holder === ownHolder;
  }

  /**
   * Completes an acceptance: forgets the proof, unless an agent has meanwhile reported an epoch or
   * order revision above the accepted ones.
   */
  finishAcceptance(): void {
    this.acceptingEpoch = undefined;
    const { reported } = this;
    if (reported === undefined) return;
    const { epoch, orderRevision } = this.currentState;
    if (reported.highestEpoch <= epoch && reported.highestOrderRevision <= orderRevision)
      this.reported = undefined;
  }

  /**
   * Forgets what an earlier term of this coordinator has found: the store has the proof, or another
   * leader has accepted the state since, or the agents report again.
   */
  beginTerm(): void {
    this.reported = undefined;
    this.acceptingEpoch = undefined;
    const restored = this.clusterRecord?.value.restored;
    if (restored !== undefined && isRestoreMark(restored)) void this.reportRestore();
  }

  /**
   * Accepts the state.
   * @returns The new epoch and order revision; undefined when the store does not count as rolled
   *   back.
   * @throws `LeadershipLostError` when another coordinator leads.
   */
  async accept(): Promise<OrderState | undefined> {
    if (this.storeRolledBack === undefined) return undefined;
    await this.skipSequences();
    return this.retryOnConflict(() => this.acceptOnce());
  }

  /**
   * Creates the leader record of a new leadership.
   * @param before - The leader record that the new record replaces.
   * @param leader - The fields of the new record.
   */
  createLeaderRecord(
    before: Stored<LeaderRecord> | undefined,
    leader: Pick<LeaderRecord, 'epoch' | 'holder' | 'address' | 'coordinatorId'>,
  ): LeaderRecord {
    const last: Leadership[] =
      before === undefined
        ? []
        : [
            create(LeadershipSchema, {
              epoch: before.value.epoch,
              orderRevision: before.revision + this.orderRevisionOffset,
            }),
          ];
    const earlier = [...(before?.value.earlier ?? []), ...last].slice(-MAX_EARLIER);
    return create(LeaderRecordSchema, { ...leader, earlier });
  }

  private get clusterRecord(): Stored<ClusterRecord> | undefined {
    return this.deps.view.get('meta', CLUSTER_ID_KEY);
  }

  private get leaderRecord(): Stored<LeaderRecord> | undefined {
    return this.deps.view.get('leader', LEADER_KEY);
  }

  private get currentState(): OrderState {
    return { epoch: this.deps.epoch(), orderRevision: this.orderRevision };
  }

  /**
   * Stores the proof, again when a newer proof arrives during the write. A failure is only logged,
   * because the proof in memory stays in effect.
   */
  private async persist(): Promise<void> {
    this.isWriting = true;
    try {
      for (
        let persisted: RestoredState | undefined;
        this.reported !== undefined && this.reported !== persisted;
      ) {
        const next = this.reported;
        await this.retryOnConflict(() => this.persistOnce(next));
        persisted = next;
      }
    } catch (reason) {
      this.deps.log.error('rollback of the store could not be recorded', errorFields(reason));
    } finally {
      this.isWriting = false;
    }
  }

  /** Reports the mark of a restore in the log, and once as an event. */
  private async reportRestore(): Promise<void> {
    const { log, clock } = this.deps;
    log.warn('the store was restored from a backup', { reason: describeRestoreMark() });
    try {
      await this.retryOnConflict(async () => {
        const { clusterRecord } = this;
        const restored = clusterRecord?.value.restored;
        if (clusterRecord === undefined || restored === undefined) return;
        if (!isRestoreMark(restored) || restored.noticedAt !== undefined) return;
        const noticed = clone(RestoredStateSchema, restored);
        noticed.noticedAt = timestampFromMs(clock.wallTime());
        const transaction = this.putCluster(clusterRecord, { restored: noticed }).event({
          severity: Severity.WARNING,
          category: Category.SYSTEM,
          reason: 'RestoredStateWaits',
          message: describeRestoreMark(),
        });
        await this.deps.commitObserved(transaction);
      });
    } catch (reason) {
      log.error('restore could not be reported', errorFields(reason));
    }
  }

  private async persistOnce(restored: RestoredState): Promise<void> {
    const { clusterRecord } = this;
    if (clusterRecord === undefined || this.reported === undefined) return;
    const transaction = this.putCluster(clusterRecord, { restored });
    const { restored: recorded } = clusterRecord.value;
    if (recorded === undefined || isRestoreMark(recorded)) {
      transaction.event({
        severity: Severity.ERROR,
        category: Category.SYSTEM,
        reason: 'StoreWentBackInTime',
        message: describeRestoredState(restored, this.currentState),
        nodeId: restored.nodeId,
      });
    }
    await this.deps.commitObserved(transaction);
  }

  /**
   * Raises the next sequence number of every workload, so that replica ids of the lost part of the
   * history are never used again. Another call after a failure only raises the numbers further.
   */
  private async skipSequences(): Promise<void> {
    const uids = [...this.deps.view.workloads()].map(({ value }) => value.uid);
    for (let from = 0; from < uids.length; from += MAX_CONTROLS_PER_COMMIT) {
      const batch = uids.slice(from, from + MAX_CONTROLS_PER_COMMIT);
      await this.retryOnConflict(async () => {
        const transaction = this.deps.transaction();
        for (const uid of batch) {
          const control = this.deps.view.control(uid);
          if (control === undefined) continue;
          const next = clone(ControlRecordSchema, control.value);
          next.nextSequence += SEQUENCE_GAP;
          transaction.require('control', uid, control).put('control', uid, next);
        }
        if (transaction.size > 0) await this.deps.commitObserved(transaction);
      });
    }
  }

  private async acceptOnce(): Promise<OrderState | undefined> {
    const { clusterRecord, leaderRecord, storeRolledBack } = this;
    if (clusterRecord === undefined || leaderRecord === undefined || storeRolledBack === undefined)
      return undefined;
    const before = this.currentState;
    const lostRevisions = maxBigint(
      0n,
      storeRolledBack.highestOrderRevision - before.orderRevision,
    );
    const epoch = maxBigint(storeRolledBack.highestEpoch, before.epoch) + EPOCH_GAP;
    const orderRevisionOffset =
      clusterRecord.value.orderRevisionOffset + lostRevisions + ORDER_REVISION_GAP;
    const transaction = this.putCluster(clusterRecord, {
      orderRevisionOffset,
      restored: undefined,
    });
    // The record lists no earlier leaderships: orders of the lost part of the history then count as
    // issued before this epoch, not as newer than the store.
    const { holder, address, coordinatorId } = leaderRecord.value;
    const accepted = create(LeaderRecordSchema, { epoch, holder, address, coordinatorId });
    transaction.put('leader', LEADER_KEY, accepted);
    transaction.event({
      severity: Severity.WARNING,
      category: Category.SYSTEM,
      reason: 'RestoredStateAccepted',
      message: `the restored state was accepted, from epoch ${epoch} on: agents get orders from it, and containers that it does not know are stopped`,
    });
    this.acceptingEpoch = epoch;
    const revision = await this.deps.commitObserved(transaction);
    return { epoch, orderRevision: revision + orderRevisionOffset };
  }

  private putCluster(
    cluster: Stored<ClusterRecord>,
    changes: {
      readonly restored: RestoredState | undefined;
      readonly orderRevisionOffset?: bigint;
    },
  ): Transaction {
    const { restored, orderRevisionOffset = cluster.value.orderRevisionOffset } = changes;
    const next = Object.assign(clone(ClusterRecordSchema, cluster.value), { orderRevisionOffset });
    if (restored === undefined) delete next.restored;
    else next.restored = restored;
    return this.deps
      .transaction()
      .require('meta', CLUSTER_ID_KEY, cluster)
      .put('meta', CLUSTER_ID_KEY, next);
  }

  private async retryOnConflict<Result>(attempt: () => Promise<Result>): Promise<Result> {
    for (let count = 1; ; count += 1) {
      try {
        return await attempt();
      } catch (reason) {
        if (errorKindOf(reason) !== 'conflict' || count >= MAX_ATTEMPTS) throw reason;
      }
    }
  }
}

function maxBigint(one: bigint, other: bigint): bigint {
  return one > other ? one : other;
}
