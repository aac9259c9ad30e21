import { uptime } from 'node:os';
import { ManualClock } from '@cloudless/base/testing';
import { PersistentLease } from './persistent-lease.js';

const HOUR_MS = 3_600_000;

describe('PersistentLease', () => {
  function aLease(persist: () => void = () => undefined) {
    const clock = new ManualClock();
    const graces: number[] = [];
    return {
      clock,
      graces,
      lease: new PersistentLease({
        clock,
        onEnd: (graceMs) => graces.push(graceMs),
        persist,
      }),
    };
  }

  it('calls onEnd with the rest of the grace period when the lease expired before resume', async () => {
    const { clock, graces, lease } = aLease();
    lease.resume({ leaseMs: 10_000, graceMs: HOUR_MS, endsAtUptimeSeconds: uptime() - 2 * 3_600 });
    await clock.advance(0);
    expect(graces).toEqual([0]);
  });

  it('calls onEnd with the whole grace period when the lease expires after resume', async () => {
    const { clock, graces, lease } = aLease();
    lease.resume({ leaseMs: HOUR_MS, graceMs: 5_000, endsAtUptimeSeconds: uptime() + 3_600 });
    await clock.advance(2 * HOUR_MS);
    expect(graces).toEqual([5_000]);
  });

  it('does not extend an expired lease in memory or on disk when it is renewed', () => {
    const { graces, lease } = aLease();
    lease.resume({ leaseMs: 10_000, graceMs: 0, endsAtUptimeSeconds: uptime() - 1 });
    lease.renew({ leaseMs: HOUR_MS, graceMs: 0 });
    expect(graces).toEqual([0]);
    expect(lease.hasEnded).toBe(true);
    expect(lease.recorded?.endsAtUptimeSeconds).toBeLessThan(uptime());
    expect(lease.current?.endsAtUptimeSeconds).toBeLessThan(uptime());
  });

  it('writes a renewed lease only when its end moves 1/4 later or earlier, or its grace period changes', () => {
    let persistCount = 0;
    const { lease } = aLease(() => (persistCount += 1));
    const renew = (leaseMs: number, graceMs = 0): number => {
      lease.renew({ leaseMs, graceMs });
      return persistCount;
    };
    expect(renew(HOUR_MS)).toBe(1);
    expect(renew(HOUR_MS)).toBe(1);
    expect(renew(1.2 * HOUR_MS)).toBe(1);
    expect(renew(1.5 * HOUR_MS)).toBe(2);
    expect(renew(1.4 * HOUR_MS)).toBe(3);
    expect(renew(1.4 * HOUR_MS, 5_000)).toBe(4);
    expect(lease.recorded).toMatchObject({ graceMs: 5_000 });
  });

  it('writes the lease at the next renewal after a write failed', () => {
    let isDiskFull = true;
    let persistCount = 0;
    const { lease } = aLease(() => {
      if (isDiskFull) throw new Error('no space left on device');
      persistCount += 1;
    });
    expect(() => lease.renew({ leaseMs: HOUR_MS, graceMs: 0 })).toThrow('no space left');
    expect(lease.recorded).toBeUndefined();
    isDiskFull = false;
    lease.renew({ leaseMs: HOUR_MS, graceMs: 0 });
    expect(persistCount).toBe(1);
    expect(lease.recorded).toMatchObject({ leaseMs: HOUR_MS });
  });
});
