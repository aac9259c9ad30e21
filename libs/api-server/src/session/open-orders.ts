import type { Order } from '@cloudless/api';
import { backoffDelayMs, TransientMap, type BackoffPolicy } from '@cloudless/base';
import type { MeasuredOrder, OrderMetrics } from './order-metrics.js';

/** Delays before an order is sent again, if the agent does not acknowledge it: 1, 2, 4, 8 s. */
const RESEND_DELAYS: BackoffPolicy = { firstMs: 1_000, maxMs: 8_000 };

/** The newest order of one replica, while it is tracked or measured. */
interface OpenOrder {
  /** True while the order is sent until the agent acknowledges it. */
  isTracked: boolean;
  /** Revision of the tracked order that was sent last; -1 before the first send. */
  revision: bigint;
  /** How often the tracked order of this revision has been sent. */
  sends: number;
  /** Time on the clock of the caller at which the tracked order is sent again. */
  dueAtMs: number;
  measured: MeasuredOrder | undefined;
}

/**
 * The orders of one session that the agent has not acknowledged, with the time at which each is
 * sent again, and their measurement. The work of a look for due orders grows with the number of
 * these orders, not with the number of replicas.
 */
export class OpenOrders {
  /** By replica id. */
  private readonly orders = new TransientMap<string, OpenOrder>();
  private trackedCount = 0;

  constructor(private readonly metrics: OrderMetrics) {}

  /** Number of orders that are sent until they are acknowledged. */
  get size(): number {
    return this.trackedCount;
  }

  /** Tracks an order that must be sent now. Has no effect while the order is tracked. */
  track(replicaId: string, nowMs: number): void {
    const order = this.ensure(replicaId);
    if (order.isTracked) return;
    this.trackedCount += 1;
    order.isTracked = true;
    order.revision = -1n;
    order.sends = 0;
    order.dueAtMs = nowMs;
  }

  /** Makes the order of a replica due at once, because the agent has requested it. */
  request(replicaId: string, nowMs: number): void {
    const order = this.orders.get(replicaId);
    if (order?.isTracked === true) order.dueAtMs = nowMs;
  }

  /**
   * Records the send of an order, and tracks the order. A new revision starts the delays again.
   */
  recordTrackedSent(sent: Order, nowMs: number): void {
    const order = this.ensure(sent.replicaId);
    if (!order.isTracked) this.trackedCount += 1;
    const isAgain = order.isTracked && order.revision === sent.orderRevision;
    order.isTracked = true;
    order.revision = sent.orderRevision;
    order.sends = isAgain ? order.sends + 1 : 1;
    order.dueAtMs = nowMs + backoffDelayMs(RESEND_DELAYS, order.sends);
    order.measured = this.metrics.recordSent(sent, order.measured);
  }

  /** Records the send of an order for an orphan, which `OrphanTracker` repeats by itself. */
  recordSent(sent: Order): void {
    const { replicaId } = sent;
    const known = this.orders.get(replicaId);
    const measured = this.metrics.recordSent(sent, known?.measured);
    if (measured !== undefined) this.ensure(replicaId).measured = measured;
    else if (known !== undefined) this.endMeasurement(replicaId, known);
  }

  /** Records that the agent has the order of a replica with this revision, or a newer order. */
  recordAcknowledged(replicaId: string, revision: bigint): void {
    const order = this.orders.get(replicaId);
    if (order?.measured === undefined || revision < order.measured.revision) return;
    this.metrics.recordAcknowledged(order.measured);
    this.endMeasurement(replicaId, order);
  }

  /** Ends the tracking of an order: the order is acknowledged, or there is none any more. */
  untrack(replicaId: string): void {
    const order = this.orders.get(replicaId);
    if (order?.isTracked !== true) return;
    this.trackedCount -= 1;
    order.isTracked = false;
    if (order.measured === undefined) this.orders.delete(replicaId);
  }

  /** Returns the ids of the replicas whose orders have to be sent now. */
  listDue(nowMs: number): readonly string[] {
    const due: string[] = [];
    for (const [replicaId, { isTracked, dueAtMs }] of this.orders)
      if (isTracked && dueAtMs <= nowMs) due.push(replicaId);
    return due;
  }

  private endMeasurement(replicaId: string, order: OpenOrder): void {
    order.measured = undefined;
    if (!order.isTracked) this.orders.delete(replicaId);
  }

  private ensure(replicaId: string): OpenOrder {
    const known = this.orders.get(replicaId);
    if (known !== undefined) return known;
    const created: OpenOrder = {
      isTracked: false,
      revision: -1n,
      sends: 0,
      dueAtMs: 0,
      measured: undefined,
    };
    this.orders.set(replicaId, created);
    return created;
  }
}
