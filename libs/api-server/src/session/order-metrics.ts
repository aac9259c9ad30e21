import type { Order } from '@cloudless/api';
import {
  DURATION_BUCKETS,
  noMeter,
  noTracer,
  type Clock,
  type Counter,
  type Histogram,
  type Labels,
  type OpenSpan,
  type Tracer,
} from '@cloudless/base';
import type { ApiServerDeps } from '../ports.js';

type OrderKind = 'start' | 'stop' | 'forget' | 'none';

/** Labels of the number of sent orders, made once: an order is sent for each replica. */
const SENT_LABELS: Readonly<Record<OrderKind, { readonly first: Labels; readonly again: Labels }>> =
  {
    start: toSentLabels('start'),
    stop: toSentLabels('stop'),
    forget: toSentLabels('forget'),
    none: toSentLabels('none'),
  };

function toSentLabels(kind: OrderKind) {
  return { first: { kind, again: 'false' }, again: { kind, again: 'true' } };
}

/** The measurement of an order that was sent and is not acknowledged yet. */
export interface MeasuredOrder {
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
  private readonly clock: Pick<Clock, 'now'>;
  /** Undefined when orders are not traced. */
  private readonly tracer: Tracer | undefined;

  constructor({
    clock,
    meter = noMeter,
    tracer = noTracer,
  }: Pick<ApiServerDeps, 'clock' | 'meter' | 'tracer'>) {
    this.clock = clock;
    this.tracer = tracer === noTracer ? undefined : tracer;
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
   * @param known - The measurement of the replica in the session, if any.
   * @returns The measurement to keep; undefined for an order that is not measured.
   */
  recordSent(order: Order, known: MeasuredOrder | undefined): MeasuredOrder | undefined {
    const { replicaId, orderRevision, workloadUid } = order;
    const kind = order.order.case ?? 'none';
    const isAgain = known?.revision === orderRevision;
    this.sentCount.add(1, isAgain ? SENT_LABELS[kind].again : SENT_LABELS[kind].first);
    if (isAgain && kind !== 'forget') return known;
    known?.span?.end();
    if (kind === 'forget') return undefined;
    const span = this.tracer?.begin(workloadUid, `order ${kind}`, {
      replicaId,
      orderRevision: String(orderRevision),
    });
    return { revision: orderRevision, sentAtMs: this.clock.now(), span };
  }

  /** Records that an agent has acknowledged a measured order. */
  recordAcknowledged({ sentAtMs, span }: MeasuredOrder): void {
    this.acknowledgedCount.add();
    this.duration.observe((this.clock.now() - sentAtMs) / 1_000);
    span?.end();
  }
}
