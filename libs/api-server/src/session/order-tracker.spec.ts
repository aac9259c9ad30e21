import { OrderTracker } from './order-tracker.js';

const SECOND_MS = 1_000;

/** Sends every due order each second, and returns the seconds at which the order `a` was sent. */
function sendUntil(tracker: OrderTracker, endSeconds: number): readonly number[] {
  const sentAt: number[] = [];
  for (let second = 0; second <= endSeconds; second += 1) {
    for (const replicaId of tracker.listDue(second * SECOND_MS)) {
      tracker.recordSent(replicaId, 1n, second * SECOND_MS);
      if (replicaId === 'a') sentAt.push(second);
    }
  }
  return sentAt;
}

describe('OrderTracker', () => {
  it('lets 1, 2, 4 and then always 8 seconds pass between two sends of an order', () => {
    const tracker = new OrderTracker();
    tracker.add('a', 0);
    expect(sendUntil(tracker, 32)).toEqual([0, 1, 3, 7, 15, 23, 31]);
  });

  it('begins anew for an order with a new revision', () => {
    const tracker = new OrderTracker();
    tracker.add('a', 0);
    sendUntil(tracker, 10);
    tracker.recordSent('a', 2n, 11 * SECOND_MS);
    expect(tracker.listDue(11.9 * SECOND_MS)).toEqual([]);
    expect(tracker.listDue(12 * SECOND_MS)).toEqual(['a']);
  });

  it('keeps the delay of an order that is added again, and forgets an acknowledged one', () => {
    const tracker = new OrderTracker();
    tracker.recordSent('a', 1n, 0);
    tracker.recordSent('b', 1n, 0);
    tracker.add('a', 500);
    expect(tracker.listDue(999)).toEqual([]);
    tracker.delete('b');
    expect(tracker.listDue(1_000)).toEqual(['a']);
    expect(tracker.size).toBe(1);
  });
});
