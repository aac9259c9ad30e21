import { create } from '@bufbuild/protobuf';
import { OrderSchema, type Order } from '@cloudless/api';
import { ManualClock, RecordingMeter } from '@cloudless/base/testing';
import { OpenOrders } from './open-orders.js';
import { OrderMetrics } from './order-metrics.js';

const SECOND_MS = 1_000;

const meter = new RecordingMeter();
const createOrders = (): OpenOrders =>
  new OpenOrders(new OrderMetrics({ clock: new ManualClock(), meter }));

const anOrder = (
  replicaId: string,
  orderRevision: bigint,
  kind: 'stop' | 'forget' = 'stop',
): Order => create(OrderSchema, { replicaId, orderRevision, order: { case: kind, value: {} } });

/** Sends every due order each second, and returns the seconds at which the order `a` was sent. */
function sendUntil(orders: OpenOrders, endSeconds: number): readonly number[] {
  const sentAt: number[] = [];
  for (let second = 0; second <= endSeconds; second += 1) {
    for (const replicaId of orders.listDue(second * SECOND_MS)) {
      orders.recordTrackedSent(anOrder(replicaId, 1n), second * SECOND_MS);
      if (replicaId === 'a') sentAt.push(second);
    }
  }
  return sentAt;
}

const countAcknowledged = () => meter.read('cloudless_orders_acknowledged_total');

describe('OpenOrders', () => {
  it('lets 1, 2, 4 and then always 8 seconds pass between two sends of an order', () => {
    const orders = createOrders();
    orders.track('a', 0);
    expect(sendUntil(orders, 32)).toEqual([0, 1, 3, 7, 15, 23, 31]);
  });

  it('starts the delays again for an order with a new revision', () => {
    const orders = createOrders();
    orders.track('a', 0);
    sendUntil(orders, 10);
    orders.recordTrackedSent(anOrder('a', 2n), 11 * SECOND_MS);
    expect(orders.listDue(11.9 * SECOND_MS)).toEqual([]);
    expect(orders.listDue(12 * SECOND_MS)).toEqual(['a']);
  });

  it('starts the delays again for an order that is tracked again after its acknowledgement', () => {
    const orders = createOrders();
    orders.track('a', 0);
    sendUntil(orders, 10);
    orders.untrack('a');
    orders.track('a', 11 * SECOND_MS);
    expect(orders.listDue(11 * SECOND_MS)).toEqual(['a']);
    orders.recordTrackedSent(anOrder('a', 1n), 11 * SECOND_MS);
    expect(orders.listDue(12 * SECOND_MS)).toEqual(['a']);
  });

  it('keeps the delay of an order that is tracked twice, and drops an untracked order', () => {
    const orders = createOrders();
    orders.recordTrackedSent(anOrder('a', 1n), 0);
    orders.recordTrackedSent(anOrder('b', 1n), 0);
    orders.track('a', 500);
    expect(orders.listDue(999)).toEqual([]);
    orders.untrack('b');
    expect(orders.listDue(1_000)).toEqual(['a']);
    expect(orders.size).toBe(1);
  });

  it('makes a requested order due at once only while the order is tracked', () => {
    const orders = createOrders();
    orders.recordTrackedSent(anOrder('a', 1n), 0);
    orders.recordSent(anOrder('b', 1n));
    orders.request('a', 10);
    orders.request('b', 10);
    expect([orders.listDue(10), orders.size]).toEqual([['a'], 1]);
  });

  it('measures an order until it is acknowledged, whether it is tracked or not', async () => {
    const orders = createOrders();
    const before = await countAcknowledged();
    orders.recordTrackedSent(anOrder('a', 2n), 0);
    orders.recordAcknowledged('a', 1n);
    expect(await countAcknowledged()).toBe(before);
    orders.untrack('a');
    orders.recordAcknowledged('a', 2n);
    orders.recordAcknowledged('a', 2n);
    expect(await countAcknowledged()).toBe(before + 1);
    orders.recordSent(anOrder('b', 1n));
    orders.recordAcknowledged('b', 3n);
    expect(await countAcknowledged()).toBe(before + 2);
  });

  it('ends the measurement of an order when a forget order follows', async () => {
    const orders = createOrders();
    const before = await countAcknowledged();
    orders.recordSent(anOrder('a', 1n));
    orders.recordSent(anOrder('a', 2n, 'forget'));
    orders.recordAcknowledged('a', 2n);
    expect(await countAcknowledged()).toBe(before);
  });
});
