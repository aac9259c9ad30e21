import { describe, expect, it } from '@jest/globals';
import { ManualClock } from '@cloudless/base/testing';
import { pollUntilFound } from './poll-until-found.js';

describe('pollUntilFound', () => {
  it('returns a value that find returns only after a minute', async () => {
    const clock = new ManualClock();
    let processName: string | undefined;
    const found = pollUntilFound(
      () => processName,
      () => false,
      clock,
    );
    await clock.advance(60_000);
    processName = 'command';
    await clock.advance(100);
    expect(await found).toBe('command');
  });

  it('polls every 5 ms in the first second and every 100 ms later, until isOver returns true', async () => {
    const clock = new ManualClock();
    let calls = 0;
    let isOver = false;
    const found = pollUntilFound(
      () => void (calls += 1),
      () => isOver,
      clock,
    );
    await clock.advance(1_000);
    expect(calls).toBeGreaterThanOrEqual(200);
    calls = 0;
    await clock.advance(1_000);
    expect(calls).toBeLessThanOrEqual(11);
    isOver = true;
    await clock.advance(100);
    expect(await found).toBeUndefined();
  });
});
