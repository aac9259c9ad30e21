import type { Order } from '@cloudless/api';
import {
  DURATION_BUCKETS,
  noMeter,
  noTracer,
  type Counter,
  type Histogram,
  type OpenSpan,
  type Tracer,
} from '@cloudless/base';
import type { ApiServerDeps } from '../ports.js';

/** An order that was sent and not acknowledged yet. */
interface PendingOrder {
  readonly revision: bigint;
  /** Time of the first send on the monotonic clock. */
  readonly sentAtMs: number;
  readonly span: OpenSpan | undefined;
}

/** Metrics of orders: the number sent, and the time until their agents acknowledge them. */
export class OrderMetrics {
  private readonly sentCount: Counter;
  private readonly acknowledgedCount: Counter;
  private readonly duration: Histogram;
  private readonly tracer: Tracer;
  /** Pending orders by session and replica id. Freed together with the session. */
  private readonly pending = new WeakMap<object, Map<string, PendingOrder>>();

  constructor(private readonly deps: Pick<ApiServerDeps, 'clock' | 'meter' | 'tracer'>) {
    const { meter = noMeter, tracer = noTracer } = deps;
    this.tracer = tracer;
    this.sentCount = meter.counter({
      name: 'cloudless_orders_sent_total',
      help: 'Orders given to sessions, by kind, and whether the same one had been given before.',
      labels: ['kind', 'again'],
    });
    this.acknowledgedCount = meter.counter({
      name: 'cloudless_orders_acknowledged_total',
      help: 'Start and stop orders that agents have acknowledged.',
    });
    this.duration = meter.histogram({
      name: 'cloudless_order_acknowledge_duration_seconds',
      help: 'From giving an order to a session for the first time until its agent has acknowledged it.',
      buckets: DURATION_BUCKETS,
    });
  }

  /**
   * Records that an order was passed to a session, for the first time or again.
   * @param session - Any object that identifies the session.
   */
  recordSent(session: object, order: Order): void {
    const { replicaId, orderRevision, workloadUid } = order;
    const kind = order.order.case ?? 'none';
    const pending = this.getPending(session);
    const known = pending.get(replicaId);
    const again = known?.revision === orderRevision;
    this.sentCount.add(1, { kind, again: String(again) });
    if (kind === 'forget') return this.discard(session, replicaId);
    if (again) return;
    known?.span?.end();
    const span = this.tracer.begin(workloadUid, `order ${kind}`, {
      replicaId,
      orderRevision: String(orderRevision),
    });
    pending.set(replicaId, { revision: orderRevision, sentAtMs: this.deps.clock.now(), span });
  }

  /** Records that the agent has the order of a replica with this revision, or a newer order. */
  recordAcknowledged(session: object, replicaId: string, orderRevision: bigint): void {
    const order = this.pending.get(session)?.get(replicaId);
    if (order === undefined || orderRevision < order.revision) return;
    this.acknowledgedCount.add();
    this.duration.observe((this.deps.clock.now() - order.sentAtMs) / 1_000);
    this.discard(session, replicaId);
  }

  /** Stops the measurement of a pending order. */
  discard(session: object, replicaId: string): void {
    const pending = this.pending.get(session);
    pending?.get(replicaId)?.span?.end();
    pending?.delete(replicaId);
  }

  private getPending(session: object): Map<string, PendingOrder> {
    const known = this.pending.get(session);
    if (known !== undefined) return known;
    const created = new Map<string, PendingOrder>();
    this.pending.set(session, created);
    return created;
  }
}
