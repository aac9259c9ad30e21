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
import { CLUSTER_ID_KEY, LEADER_KEY } from './records.js';
import type { Transaction } from './transaction.js';
import type { IndexedView, Stored } from './view.js';

/** What an operator runs to make a restored state the truth again. */
export const ACCEPT_COMMAND = 'cloudlessctl admin accept-restored-state';

/** What an agent holds that this store has never given. */
export interface HeldByAgent {
  readonly nodeId: string;
  readonly epoch: bigint;
  readonly orderRevision: bigint;
}

/** The state that was accepted. */
export interface AcceptedState {
  readonly epoch: bigint;
  readonly orderRevision: bigint;
}

/** The store went back in time: nothing may be decided upon it until an operator says so. */
export class RestoredStateError extends CloudlessError {
  constructor(restored: RestoredState, present: AcceptedState) {
    super('precondition', describeRestored(restored, present));
  }
}

/** Says what proves it, what that means, and what to do. */
export function describeRestored(
  restored: RestoredState,
  { epoch, orderRevision }: AcceptedState,
): string {
  const { nodeId, highestEpoch, highestOrderRevision } = restored;
  const held = [
    ...(highestEpoch > 0n ? [`epoch ${highestEpoch} (here: ${epoch})`] : []),
    ...(highestOrderRevision > 0n
      ? [`order revision ${highestOrderRevision} (here: ${orderRevision})`]
      : []),
  ];
  return (
    `the store went back in time: node "${nodeId}" has taken orders that it has never given, ${held.join(' and ')}; nothing is ` +
    `started, stopped or changed until this state is made the truth again; to do so, run: ${ACCEPT_COMMAND}`
  );
}

/** What {@link RestoredStateKeeper} works with. */
export interface RestoredStateDeps {
  readonly view: IndexedView;
  readonly clock: Clock;
  readonly log: Log;
  /** Number of our leadership now. */
  readonly epoch: () => bigint;
  readonly transaction: () => Transaction;
  /** Commits also while the store is known to have gone back in time. */
  readonly commit: (transaction: Transaction) => Promise<Revision>;
}

/**
 * Earlier leaderships that are remembered; the orders of older ones are measured by the first of
 * these.
 */
const MAX_EARLIER = 100;
/**
 * More orders than a store can have lost: one acceptance is enough also for agents that come back
 * later.
 */
const ORDER_REVISION_GAP = 2n ** 40n;
/** More leaderships than a store can have lost. */
const EPOCH_GAP = 1_000n;
/** More replicas of one workload than a store can have lost: their ids are not given again. */
const SEQUENCE_GAP = 1_000_000n;
const MAX_CONTROLS_PER_COMMIT = 80;
const MAX_ATTEMPTS = 16;

/**
 * Notices that the store went back in time (a backup was put back, a disk was swapped), by what
 * agents hold; keeps that in the store, and makes the state the truth again when an operator says
 * so.
 */
export class RestoredStateKeeper {
  /** What was noticed by this coordinator, at once; the record follows. */
  private noticed: RestoredState | undefined;
  private isWriting = false;
  /** Epoch from which the state is to be the truth again. */
  private accepting: bigint | undefined;

  constructor(private readonly deps: RestoredStateDeps) {}

  /**
   * What proves that the store went back in time; undefined when nothing does, or it was accepted.
   */
  get found(): RestoredState | undefined {
    return this.noticed ?? this.cluster?.value.restored;
  }

  /** The newest revision an order can have now. */
  get orderRevision(): bigint {
    return this.deps.view.revision + this.offset;
  }

  /** What is added to the store's revision wherever an agent is told one. */
  get offset(): bigint {
    return this.cluster?.value.orderRevisionOffset ?? 0n;
  }

  /**
   * The newest revision of an order that leaderships up to and with `epoch` can have given. 0: it
   * is not known which.
   */
  newestOrderOf(epoch: bigint): bigint {
    const leader = this.leader;
    if (leader === undefined || epoch === 0n || epoch >= leader.value.epoch)
      return this.orderRevision;
    const next = leader.value.earlier.find((leadership) => leadership.epoch > epoch);
    return next?.orderRevision ?? leader.revision + this.offset;
  }

  /** An agent holds what this store has never given. From here on nothing is decided. */
  notice(held: HeldByAgent): void {
    const { clock, log } = this.deps;
    const before = this.found;
    if (
      before !== undefined &&
      held.epoch <= before.highestEpoch &&
      held.orderRevision <= before.highestOrderRevision
    )
      return;
    this.noticed = create(RestoredStateSchema, {
      nodeId: before?.nodeId ?? held.nodeId,
      highestEpoch: maxOf(before?.highestEpoch ?? 0n, held.epoch),
      highestOrderRevision: maxOf(before?.highestOrderRevision ?? 0n, held.orderRevision),
      noticedAt: before?.noticedAt ?? timestampFromMs(clock.wallTime()),
    });
    if (before === undefined)
      log.error('store went back in time', {
        reason: describeRestored(this.noticed, this.present),
      });
    if (!this.isWriting) void this.write();
  }

  /** Our acceptance has been committed: this leadership is ours. */
  isAcceptedBy({ epoch, holder }: LeaderRecord, ourselves: string): boolean {
    return epoch === this.accepting && holder === ourselves;
  }

  /**
   * It was accepted: nothing is held against the store any more, but what was told meanwhile and is
   * newer still.
   */
  settle(): void {
    this.accepting = undefined;
    const { noticed } = this;
    if (noticed === undefined) return;
    const { epoch, orderRevision } = this.present;
    if (noticed.highestEpoch <= epoch && noticed.highestOrderRevision <= orderRevision)
      this.noticed = undefined;
  }

  /** Makes the state the truth again. @returns Undefined when there is nothing to accept. */
  async accept(): Promise<AcceptedState | undefined> {
    if (this.found === undefined) return undefined;
    await this.skipSequences();
    return this.untilNoConflict(() => this.acceptOnce());
  }

  /** The leader record of a new leadership. */
  succeed(before: Stored<LeaderRecord> | undefined, epoch: bigint, holder: string): LeaderRecord {
    const last: Leadership[] =
      before === undefined
        ? []
        : [
            create(LeadershipSchema, {
              epoch: before.value.epoch,
              orderRevision: before.revision + this.offset,
            }),
          ];
    const earlier = [...(before?.value.earlier ?? []), ...last].slice(-MAX_EARLIER);
    return create(LeaderRecordSchema, { epoch, holder, earlier });
  }

  private get cluster(): Stored<ClusterRecord> | undefined {
    return this.deps.view.get('meta', CLUSTER_ID_KEY);
  }

  private get leader(): Stored<LeaderRecord> | undefined {
    return this.deps.view.get('leader', LEADER_KEY);
  }

  private get present(): AcceptedState {
    return { epoch: this.deps.epoch(), orderRevision: this.orderRevision };
  }

  /**
   * Writes down what was noticed, and what is noticed meanwhile. What cannot be written holds all
   * the same.
   */
  private async write(): Promise<void> {
    this.isWriting = true;
    try {
      for (
        let kept: RestoredState | undefined;
        this.noticed !== undefined && this.noticed !== kept;
      ) {
        const next = this.noticed;
        await this.untilNoConflict(() => this.writeOnce(next));
        kept = next;
      }
    } catch (reason) {
      this.deps.log.error(
        'that the store went back in time is not written down',
        errorFields(reason),
      );
    } finally {
      this.isWriting = false;
    }
  }

  private async writeOnce(restored: RestoredState): Promise<void> {
    const { cluster } = this;
    if (cluster === undefined || this.noticed === undefined) return;
    const transaction = this.putCluster(cluster, { restored });
    if (cluster.value.restored === undefined) {
      transaction.event({
        severity: Severity.ERROR,
        category: Category.SYSTEM,
        reason: 'StoreWentBackInTime',
        message: describeRestored(restored, this.present),
        nodeId: restored.nodeId,
      });
    }
    await this.deps.commit(transaction);
  }

  /**
   * Ids of replicas that the lost future may have used are skipped. Doing so again skips some more.
   */
  private async skipSequences(): Promise<void> {
    const uids = [...this.deps.view.workloads()].map(({ value }) => value.uid);
    for (let from = 0; from < uids.length; from += MAX_CONTROLS_PER_COMMIT) {
      const batch = uids.slice(from, from + MAX_CONTROLS_PER_COMMIT);
      await this.untilNoConflict(async () => {
        const transaction = this.deps.transaction();
        for (const uid of batch) {
          const control = this.deps.view.control(uid);
          if (control === undefined) continue;
          const next = clone(ControlRecordSchema, control.value);
          next.nextSequence += SEQUENCE_GAP;
          transaction.require('control', uid, control).put('control', uid, next);
        }
        if (transaction.size > 0) await this.deps.commit(transaction);
      });
    }
  }

  private async acceptOnce(): Promise<AcceptedState | undefined> {
    const { cluster, leader, found } = this;
    if (cluster === undefined || leader === undefined || found === undefined) return undefined;
    const before = this.present;
    const lag = maxOf(0n, found.highestOrderRevision - before.orderRevision);
    const epoch = maxOf(found.highestEpoch, before.epoch) + EPOCH_GAP;
    const orderRevisionOffset = cluster.value.orderRevisionOffset + lag + ORDER_REVISION_GAP;
    const transaction = this.putCluster(cluster, { orderRevisionOffset, restored: undefined });
    // Without the earlier ones: what the lost future has ordered in their name is now just old.
    const { holder } = leader.value;
    transaction.put('leader', LEADER_KEY, create(LeaderRecordSchema, { epoch, holder }));
    transaction.event({
      severity: Severity.WARNING,
      category: Category.SYSTEM,
      reason: 'RestoredStateAccepted',
      message: `the restored state is the truth again, from epoch ${epoch} on: agents get orders by it, and what it does not know is stopped`,
    });
    this.accepting = epoch;
    const revision = await this.deps.commit(transaction);
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

  private async untilNoConflict<Result>(attempt: () => Promise<Result>): Promise<Result> {
    for (let count = 1; ; count += 1) {
      try {
        return await attempt();
      } catch (reason) {
        if (errorKindOf(reason) !== 'conflict' || count >= MAX_ATTEMPTS) throw reason;
      }
    }
  }
}

function maxOf(one: bigint, other: bigint): bigint {
  return one > other ? one : other;
}
