import type { Clock } from '@cloudless/base';
import { LeaseTimer } from './lease-timer.js';

describe('LeaseTimer', () => {
  /** Clock of a suspended process: time has passed, timers have not fired yet. */
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

  it('ignores a renewal that is handled after the end of the lease', () => {
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

  it('never ends after the lease was removed', () => {
    const clock = aClock();
    const lease = new LeaseTimer(clock, () => undefined);
    lease.renew({ leaseMs: 10_000, graceMs: 0 });
    lease.renew(undefined);
    clock.nowMs = 20_000;
    lease.renew({ leaseMs: 10_000, graceMs: 0 });
    expect(lease.hasEnded).toBe(false);
  });
});
