import { describe, expect, it } from '@jest/globals';
import { ManualClock } from '@cloudless/base/testing';
import { pollUntilFound } from './poll-until-found.js';

describe('pollUntilFound', () => {
  it('finds a process that appears after a minute, as on a machine under load', async () => {
    const clock = new ManualClock();
    let there: string | undefined;
    const found = pollUntilFound(
      () => there,
      () => false,
      clock,
    );
    await clock.advance(60_000);
    there = 'command';
    await clock.advance(100);
    expect(await found).toBe('command');
  });

  it('polls often at first and rarely later', async () => {
    const clock = new ManualClock();
    let looks = 0;
    let over = false;
    const found = pollUntilFound(
      () => void (looks += 1),
      () => over,
      clock,
    );
    await clock.advance(1_000);
    expect(looks).toBeGreaterThanOrEqual(200);
    looks = 0;
    await clock.advance(1_000);
    expect(looks).toBeLessThanOrEqual(11);
    over = true;
    await clock.advance(100);
    expect(await found).toBeUndefined();
  });
});
