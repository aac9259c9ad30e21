import { ManualClock } from '@cloudless/base/testing';
import { PassPacing } from './pass-pacing.js';

describe('PassPacing', () => {
  it.each([
    { name: 'a short pass', durationMs: 0.2, waitMs: 0 },
    { name: 'a pass of 0.3 ms, for the shortest time', durationMs: 0.3, waitMs: 10 },
    { name: 'a pass of 20 ms', durationMs: 20, waitMs: 120 },
    { name: 'a pass of a second, up to the longest pause', durationMs: 1_000, waitMs: 250 },
  ])('pauses after $name', async ({ durationMs, waitMs }) => {
    const clock = new ManualClock();
    const pacing = new PassPacing(clock);
    pacing.recordPass('w', durationMs);
    expect(pacing.getWaitMs('w')).toBe(waitMs);
    expect(pacing.getWaitMs('other')).toBe(0);
    await clock.advance(waitMs);
    expect(pacing.getWaitMs('w')).toBe(0);
  });

  it('pauses longer while other workloads pause, so that all passes share the main loop', async () => {
    const clock = new ManualClock();
    const pacing = new PassPacing(clock);
    for (const uid of ['a', 'b', 'c']) pacing.recordPass(uid, 20);
    expect(['a', 'b', 'c'].map((uid) => pacing.getWaitMs(uid))).toEqual([120, 240, 360]);
    await clock.advance(300);
    pacing.recordPass('a', 20);
    expect(pacing.getWaitMs('a')).toBe(240);
    pacing.recordPass('d', 200);
    expect(pacing.getWaitMs('d')).toBe(1_000);
  });

  it('pauses longer than a second when the passes of all workloads take longer than a half', () => {
    const pacing = new PassPacing(new ManualClock());
    for (let each = 0; each < 400; each += 1) pacing.recordPass(`w-${each}`, 5);
    pacing.recordPass('last', 5);
    expect(pacing.getWaitMs('last')).toBe(2 * 401 * 5);
  });

  it('pauses no longer because one pass of many took long', () => {
    const pacing = new PassPacing(new ManualClock());
    for (let each = 0; each < 100; each += 1) pacing.recordPass(`w-${each}`, 0.5);
    pacing.recordPass('long', 300);
    expect(pacing.getWaitMs('long')).toBe(1_000);
  });

  it('counts no pass of a pause that has ended', async () => {
    const clock = new ManualClock();
    const pacing = new PassPacing(clock);
    for (let each = 0; each < 400; each += 1) pacing.recordPass(`w-${each}`, 5);
    await clock.advance(10_000);
    for (let each = 0; each < 100; each += 1) pacing.recordPass(`w-${each}`, 2);
    pacing.recordPass('last', 2);
    expect(pacing.getWaitMs('last')).toBe(1_000);
  });

  it('ends the pause of a workload that a user has changed', () => {
    const pacing = new PassPacing(new ManualClock());
    pacing.recordPass('w', 20);
    pacing.skipPause('w');
    expect(pacing.getWaitMs('w')).toBe(0);
  });

  it('forgets pauses that have ended, so that deleted workloads take no memory', async () => {
    const clock = new ManualClock();
    const pacing = new PassPacing(clock);
    for (let each = 0; each < 1_000; each += 1) pacing.recordPass(`w-${each}`, 20);
    await clock.advance(60_000);
    pacing.recordPass('w', 20);
    expect(pacing.size).toBe(1);
    expect(pacing.getWaitMs('w')).toBe(120);
  });
});
