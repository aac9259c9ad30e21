import { ManualClock } from '@cloudless/base/testing';
import { PassPacing } from './pass-pacing.js';

describe('PassPacing', () => {
  it.each([
    { name: 'a short pass', durationMs: 1, waitMs: 0 },
    { name: 'a pass of 20 ms', durationMs: 20, waitMs: 60 },
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
    await clock.advance(60);
    pacing.recordPass('w', 20);
    expect(pacing.size).toBe(1);
    expect(pacing.getWaitMs('w')).toBe(60);
  });
});
