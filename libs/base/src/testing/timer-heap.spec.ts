import fc from 'fast-check';
import { TimerHeap, type HeapTimer } from './timer-heap.js';

const anyOperation = fc.oneof(
  { weight: 5, arbitrary: fc.record({ operation: fc.constant('add' as const), at: fc.nat(50) }) },
  {
    weight: 4,
    arbitrary: fc.record({ operation: fc.constant('cancel' as const), at: fc.nat(200) }),
  },
  {
    weight: 1,
    arbitrary: fc.record({ operation: fc.constant('remove' as const), at: fc.nat(50) }),
  },
);

describe('TimerHeap', () => {
  it('returns due timers in the order of deadline, then of creation, without cancelled timers', () => {
    fc.assert(
      fc.property(fc.array(anyOperation, { maxLength: 400 }), (operations) => {
        const heap = new TimerHeap();
        const all: HeapTimer[] = [];
        let waiting: HeapTimer[] = [];
        const fired: number[] = [];
        for (const { operation, at } of operations) {
          if (operation === 'add') {
            const order = all.length;
            const timer: HeapTimer = { at, order, action: () => fired.push(order) };
            heap.add(timer);
            all.push(timer);
            waiting.push(timer);
          } else if (operation === 'cancel') {
            const timer = all[at];
            if (timer === undefined) continue;
            heap.cancel(timer);
            waiting = waiting.filter((other) => other !== timer);
          } else {
            const [first] = waiting
              .filter((timer) => timer.at <= at)
              .sort((a, b) => a.at - b.at || a.order - b.order);
            const expected = first?.order;
            heap.removeDue(at)?.action();
            expect(fired.pop()).toBe(expected);
            waiting = waiting.filter((other) => other !== first);
          }
          expect(heap.size).toBe(waiting.length);
        }
      }),
    );
  });

  it('removes cancelled timers when they outnumber the others', () => {
    const heap = new TimerHeap();
    const timers = Array.from({ length: 200 }, (_, order): HeapTimer => ({
      at: 1,
      order,
      action: () => undefined,
    }));
    for (const timer of timers) heap.add(timer);
    for (const timer of timers.slice(0, 199)) heap.cancel(timer);
    expect({ size: heap.size, first: heap.removeDue(1)?.at, then: heap.removeDue(1) }).toEqual({
      size: 1,
      first: 1,
      then: undefined,
    });
  });
});
