import fc from 'fast-check';
import { ManualClock, settle } from './index.js';

describe('ManualClock', () => {
  it('returns wall time from its epoch, and advances wall time and monotonic time together', async () => {
    const clock = new ManualClock(1_000);
    expect({ now: clock.now(), wall: clock.wallTime() }).toEqual({ now: 0, wall: 1_000 });
    await clock.advance(5);
    expect({ now: clock.now(), wall: clock.wallTime() }).toEqual({ now: 5, wall: 1_005 });
    expect(new ManualClock().wallTime()).toBe(Date.UTC(2026, 0, 1));
  });

  it('fires timers in the order of deadline, then of creation, each at its deadline', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.integer({ min: -2, max: 20 }), { maxLength: 30 }),
        fc.nat(25),
        async (delays, until) => {
          const clock = new ManualClock();
          const fired: [number, number][] = [];
          delays.forEach((delayMs, index) =>
            clock.setTimer(delayMs, () => fired.push([clock.now(), index])),
          );
          await clock.advance(until);
          const due = delays
            .map((delayMs, index): [number, number] => [Math.max(0, delayMs), index])
            .filter(([at]) => at <= until);
          expect(fired).toEqual(due.sort((a, b) => a[0] - b[0] || a[1] - b[1]));
          expect({ now: clock.now(), pending: clock.pendingTimers }).toEqual({
            now: until,
            pending: delays.length - due.length,
          });
        },
      ),
      { numRuns: 50 },
    );
  });

  it('runs all pending promises between two timers', async () => {
    const clock = new ManualClock();
    const order: string[] = [];
    clock.setTimer(
      1,
      () => void settleFor(20).then(() => order.push('promise of the first timer')),
    );
    clock.setTimer(1, () => order.push('second timer'));
    await clock.advance(1);
    expect(order).toEqual(['promise of the first timer', 'second timer']);
  });

  it('fires timers that were set during the advance at their own deadlines', async () => {
    const clock = new ManualClock();
    const fired: number[] = [];
    const tick = (): void => {
      fired.push(clock.now());
      clock.setTimer(10, tick);
    };
    clock.setTimer(10, tick);
    await clock.advance(35);
    expect(fired).toEqual([10, 20, 30]);
    expect(clock.pendingTimers).toBe(1);
  });

  it('fires a periodic timer once after a suspension, late', async () => {
    const clock = new ManualClock();
    const fired: number[] = [];
    const tick = (): void => {
      fired.push(clock.now());
      clock.setTimer(10, tick);
    };
    clock.setTimer(10, tick);
    clock.suspend(1_005);
    expect({ now: clock.now(), fired }).toEqual({ now: 1_005, fired: [] });
    await clock.advance(15);
    expect(fired).toEqual([1_005, 1_015]);
  });

  it('does not fire a cancelled timer, also when a timer with the same deadline cancels it', async () => {
    const clock = new ManualClock();
    const fired: string[] = [];
    clock.setTimer(5, () => {
      fired.push('first');
      second.cancel();
    });
    const second = clock.setTimer(5, () => fired.push('second'));
    const third = clock.setTimer(1, () => fired.push('third'));
    third.cancel();
    third.cancel();
    await clock.advance(10);
    second.cancel();
    expect(fired).toEqual(['first']);
    expect(clock.pendingTimers).toBe(0);
  });

  it('does not go back in a negative advance or in overlapping advances', async () => {
    const clock = new ManualClock();
    await clock.advance(10);
    await clock.advance(-5);
    expect(clock.now()).toBe(10);
    await Promise.all([clock.advance(100), clock.advance(1)]);
    expect(clock.now()).toBe(110);
  });
});

async function settleFor(turns: number): Promise<void> {
  for (let turn = 0; turn < turns; turn += 1) await Promise.resolve();
}

describe('settle', () => {
  it('resolves after a chain of a hundred awaits', async () => {
    let isDone = false;
    void settleFor(100).then(() => (isDone = true));
    await settle();
    expect(isDone).toBe(true);
  });
});
