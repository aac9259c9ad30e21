import { fromBinary } from '@bufbuild/protobuf';
import { errorFields, type Log } from '@cloudless/base';
import { OrderSchema, type Order } from '@cloudless/api';
import type { AgentStore, SaveOptions, StoredReplica } from '../store/agent-store.js';
import { SerialQueue } from '../store/serial-queue.js';
import { isEnded } from './replica-phase.js';
import { isUnconfirmed, type ReplicaState } from './replica-state.js';
import { toStoredProgress, toStoredReplica, type ReplicaOrders } from './stored-orders.js';

/**
 * Stores the orders and the progress of one replica. Queued tasks and saves run one after the other.
 */
export class ReplicaStorage {
  private readonly writes = new SerialQueue();
  /** Progress of the last successful save, as JSON. */
  private savedProgress = '';
  private saveQueued = false;

  constructor(
    private readonly store: Pick<AgentStore, 'saveReplica' | 'markStopped' | 'removeReplica'>,
    private readonly log: Log,
    private current: ReplicaOrders,
  ) {}

  /** Orders that are in effect. */
  get orders(): ReplicaOrders {
    return this.current;
  }

  /** The stored start order; undefined before the first start order. */
  get startOrder(): Order | undefined {
    const { start } = this.current;
    return start === undefined ? undefined : fromBinary(OrderSchema, start);
  }

  /** Returns the stored form of the replica. */
  toStored(state: ReplicaState): StoredReplica {
    return toStoredReplica(state, this.current);
  }

  /** Queues a task, which runs after all earlier tasks and saves. */
  enqueue<Result>(task: () => Promise<Result>): Promise<Result> {
    return this.writes.run(task);
  }

  /**
   * Writes orders to disk at once: call it in a task of {@link enqueue}. The orders are in effect
   * only after {@link useOrders}.
   */
  saveOrders(state: ReplicaState, orders: ReplicaOrders, options: SaveOptions): Promise<void> {
    return this.store.saveReplica(toStoredReplica(state, orders), options);
  }

  /**
   * Records that the replica is never started again, for a stop that could not be stored: call it in
   * a task of {@link enqueue}. Never rejects.
   * @returns False when that could not be stored either.
   */
  async tryMarkStopped(replicaId: string): Promise<boolean> {
    try {
      await this.store.markStopped(replicaId);
      return true;
    } catch (reason) {
      this.log.warn('stop not marked', errorFields(reason));
      return false;
    }
  }

  /** Puts orders into effect. */
  useOrders(orders: ReplicaOrders): void {
    this.current = orders;
  }

  /**
   * Returns true when an order of the same revision and kind is in effect. False while the agent
   * waits for a coordinator to repeat the stored order, for example after a reboot of the machine:
   * the repeated order then has an effect.
   */
  hasSame(order: Order, state: ReplicaState): boolean {
    if (order.orderRevision !== state.heldRevision || isUnconfirmed(state.activity)) return false;
    // A stop order and the forget order after it can have the same revision when nothing was
    // committed in between.
    if (order.order.case === 'forget') return state.forget;
    return order.order.case === 'start'
      ? this.current.start !== undefined
      : this.current.end !== undefined;
  }

  /**
   * Queues a save of the progress; at most one save waits. Unlike an order, progress need not be on
   * disk before the agent acts on it.
   * @param readState - Called when the save is made.
   */
  queueProgressSave(readState: () => ReplicaState): void {
    const { start, end } = this.current;
    if (this.saveQueued || (start === undefined && end === undefined)) return;
    this.saveQueued = true;
    void this.writes.run(async () => {
      this.saveQueued = false;
      const state = readState();
      const key = JSON.stringify(toStoredProgress(state));
      // The stored progress of an unconfirmed replica stays until a coordinator repeats the order.
      if (key === this.savedProgress || state.activity.kind === 'unconfirmed') return;
      if (isEnded(state.phase) && state.forget) return; // will be removed from the store
      try {
        await this.store.saveReplica(toStoredReplica(state, this.current));
        this.savedProgress = key;
      } catch (reason) {
        this.log.warn('progress not stored', errorFields(reason));
      }
    });
  }

  /**
   * Removes all that is stored of a replica, in the present turn of {@link enqueue}.
   * @returns False when the removal failed, which is logged.
   */
  async tryRemove(replicaId: string): Promise<boolean> {
    try {
      await this.store.removeReplica(replicaId);
      return true;
    } catch (reason) {
      this.log.warn('replica not removed', errorFields(reason));
      return false;
    }
  }

  /**
   * Removes the stored data of the replica after all earlier writes.
   * @param onRemoved - Called before a later write can begin.
   */
  remove(replicaId: string, onRemoved: () => void): Promise<void> {
    return this.writes.run(async () => {
      await this.store.removeReplica(replicaId);
      onRemoved();
    });
  }

  /** Resolves when pending writes have ended. */
  idle(): Promise<void> {
    return this.writes.idle();
  }
}
