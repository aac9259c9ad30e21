import type { Clock } from '@cloudless/base';
import { LeaseTimer } from './lease-timer.js';

describe('the lease of a container', () => {
  /** A process that stood still: its time went on, its timers did not run yet. */
  function aClock(): Clock & { nowMs: number; fire(): void } {
    let due: (() => void) | undefined;
    return {
      nowMs: 0,
      now() {
        return this.nowMs;
      },
      wallTime: () => 0,
      setTimer: (_delayMs, action) => {
        due = action;
        return { cancel: () => (due = due === action ? undefined : due) };
      },
      fire: () => due?.(),
    };
  }

  it('is not brought back by a renewal that is read only after its end', () => {
    const clock = aClock();
    const graces: number[] = [];
    const lease = new LeaseTimer(clock, (graceMs) => graces.push(graceMs));
    lease.renew({ leaseMs: 10_000, graceMs: 5_000 });
    clock.nowMs = 9_999;
    lease.renew({ leaseMs: 10_000, graceMs: 6_000 });
    expect(lease.hasEnded).toBe(false);
    clock.nowMs = 19_999;
    lease.renew({ leaseMs: 10_000, graceMs: 7_000 });
    expect(lease.hasEnded).toBe(true);
    expect(graces).toEqual([6_000]);
    clock.fire();
    lease.renew({ leaseMs: 10_000, graceMs: 7_000 });
    clock.fire();
    expect(graces).toEqual([6_000]);
  });

  it('that was taken away has no end', () => {
    const clock = aClock();
    const lease = new LeaseTimer(clock, () => undefined);
    lease.renew({ leaseMs: 10_000, graceMs: 0 });
    lease.renew(undefined);
    clock.nowMs = 20_000;
    lease.renew({ leaseMs: 10_000, graceMs: 0 });
    expect(lease.hasEnded).toBe(false);
  });
});
