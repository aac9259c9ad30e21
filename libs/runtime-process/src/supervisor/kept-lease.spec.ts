import { uptime } from 'node:os';
import { ManualClock } from '@cloudless/base/testing';
import { KeptLease } from './kept-lease.js';

const HOUR_MS = 3_600_000;

describe('a lease that outlives its supervisor', () => {
  function aLease(keep: () => void = () => undefined) {
    const clock = new ManualClock();
    const graces: number[] = [];
    return {
      clock,
      graces,
      lease: new KeptLease({ clock, onEnd: (graceMs) => graces.push(graceMs), keep }),
    };
  }

  it('that ended while no supervisor lived leaves no more grace than is left of it', async () => {
    const { clock, graces, lease } = aLease();
    lease.resume({ leaseMs: 10_000, graceMs: HOUR_MS, endsAtUptimeSeconds: uptime() - 2 * 3_600 });
    await clock.advance(0);
    expect(graces).toEqual([0]);
  });

  it('that has not ended keeps its grace', async () => {
    const { clock, graces, lease } = aLease();
    lease.resume({ leaseMs: HOUR_MS, graceMs: 5_000, endsAtUptimeSeconds: uptime() + 3_600 });
    await clock.advance(2 * HOUR_MS);
    expect(graces).toEqual([5_000]);
  });

  it('is not extended, nor is its record, by a renewal after it has expired', () => {
    const { graces, lease } = aLease();
    lease.resume({ leaseMs: 10_000, graceMs: 0, endsAtUptimeSeconds: uptime() - 1 });
    lease.renew({ leaseMs: HOUR_MS, graceMs: 0 });
    expect(graces).toEqual([0]);
    expect(lease.hasEnded).toBe(true);
    expect(lease.recorded?.endsAtUptimeSeconds).toBeLessThan(uptime());
    expect(lease.newest?.endsAtUptimeSeconds).toBeLessThan(uptime());
  });

  it('runs on when it cannot be written down, and is written down with the next renewal', () => {
    let full = true;
    let kept = 0;
    const { lease } = aLease(() => {
      if (full) throw new Error('no space left on device');
      kept += 1;
    });
    expect(() => lease.renew({ leaseMs: HOUR_MS, graceMs: 0 })).toThrow('no space left');
    expect(lease.recorded).toBeUndefined();
    full = false;
    lease.renew({ leaseMs: HOUR_MS, graceMs: 0 });
    expect(kept).toBe(1);
    expect(lease.recorded).toMatchObject({ leaseMs: HOUR_MS });
  });
});
