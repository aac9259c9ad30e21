import { create } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { ClusterRecordSchema, LeaderRecordSchema, type ClusterRecord } from '@cloudless/api/store';
import { CloudlessError, errorKindOf, randomHex, type Clock, type Log, type Random } from '@cloudless/base';
import type { Revision, StateStore } from '@cloudless/state-store';
import { CLUSTER_ID_KEY, LEADER_KEY, SCHEMA_VERSION, decodeRecord, eventId, keyOf } from './records.js';
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
}

/**
 * Reads the whole store, takes the leadership with a new epoch, and follows the store from there.
 * @throws kind `precondition` when the store was written by a layout this version does not know, `internal` naming a record
 *   that cannot be read, `conflict` when others keep taking the leadership meanwhile.
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
  private readonly follower: ViewFollower;
  private cluster: ClusterRecord | undefined;
  private leadership: Stored<bigint> | undefined;
  private eventCount = 0;
  private readonly stamp: EventStamp;

  constructor(private readonly options: ClusterStateOptions) {
    this.follower = new ViewFollower(options.store, options.log);
    this.stamp = {
      nextId: () => eventId(this.epoch, this.eventCount++),
      nowMs: () => options.clock.wallTime(),
    };
  }

  /** The newest state, including every write that was acknowledged to us. Read it and plan without waiting in between. */
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

  /** Nobody has taken the leadership from us, as far as the view has come. Every commit makes sure of it. */
  get isLeading(): boolean {
    return this.leadership !== undefined && this.follower.view.get('leader', LEADER_KEY)?.value.epoch === this.leadership.value;
  }

  /** The view follows the store; false once that has failed for good. */
  get isFollowing(): boolean {
    return this.follower.failure === undefined;
  }

  /** Starts a transaction that holds only while we lead. */
  transaction(): Transaction {
    const transaction = new Transaction(this.stamp);
    if (this.leadership !== undefined) transaction.require('leader', LEADER_KEY, this.leadership);
    return transaction;
  }

  /**
   * Commits, and resolves once the view shows it.
   * @throws `RevisionConflictError` when a record was changed since it was read: read and plan again. Kind `unavailable`
   *   leaves it unknown whether it was committed.
   */
  async commit(transaction: Transaction): Promise<Revision> {
    if (this.follower.failure !== undefined) throw this.follower.failure;
    const { revision } = await this.options.store.txn(transaction.compares(), transaction.operations());
    await this.follower.reached(revision);
    return revision;
  }

  /** @returns Ends the subscription. */
  subscribe(listener: ChangeListener): () => void {
    return this.follower.subscribe(listener);
  }

  /** Resolves when the view shows `revision` or a later one. @throws kind `unavailable` when it never will. */
  reached(revision: Revision): Promise<void> {
    return this.follower.reached(revision);
  }

  async start(): Promise<void> {
    await this.refuseOtherLayouts();
    await this.follower.start();
    await this.untilNoConflict(() => this.ensureCluster());
    await this.untilNoConflict(() => this.lead());
  }

  /** Stops following. The store stays open: it belongs to the caller. */
  close(): Promise<void> {
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
    await this.commit(this.transaction().require('meta', CLUSTER_ID_KEY, 'absent').put('meta', CLUSTER_ID_KEY, made));
    this.cluster = made;
  }

  private async lead(): Promise<void> {
    const before = this.follower.view.get('leader', LEADER_KEY);
    const epoch = (before?.value.epoch ?? 0n) + 1n;
    const record = create(LeaderRecordSchema, { epoch, holder: this.options.holder });
    const transaction = new Transaction(this.stamp)
      .require('leader', LEADER_KEY, before ?? 'absent')
      .put('leader', LEADER_KEY, record);
    const revision = await this.commit(transaction);
    this.leadership = { value: epoch, revision };
  }

  /** Coordinators may start together on one store: the one that loses a race reads what the other wrote and goes on. */
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
