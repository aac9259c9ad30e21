import type { Clock } from '@cloudless/base';
import { LeaseTimer } from './lease-timer.js';

describe('LeaseTimer', () => {
  /** A clock whose timers do not fire when time passes, as in a suspended process. */
  function aClock(): Clock & { nowMs: number; fire(): void } {
    let pendingAction: (() => void) | undefined;
    return {
      nowMs: 0,
      now() {
        return this.nowMs;
      },
      wallTime: () => 0,
      setTimer: (_delayMs, action) => {
        pendingAction = action;
        return {
          cancel: () => (pendingAction = pendingAction === action ? undefined : pendingAction),
        };
      },
      fire: () => pendingAction?.(),
    };
  }

  it('ignores a renewal after the end of the lease, also before its timer fires', () => {
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

  it('does not end when the lease was removed in time', () => {
    const clock = aClock();
    const lease = new LeaseTimer(clock, () => undefined);
    lease.renew({ leaseMs: 10_000, graceMs: 0 });
    lease.renew(undefined);
    clock.nowMs = 20_000;
    lease.renew({ leaseMs: 10_000, graceMs: 0 });
    expect(lease.hasEnded).toBe(false);
  });
});
