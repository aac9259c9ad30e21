import { createSeededRandom, errorKindOf, errorMessageOf } from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import { RevisionConflictError } from '@cloudless/state-store';
import { retryOnConflict } from './retry-on-conflict.js';

describe('retryOnConflict', () => {
  it('retries 16 times with growing delays, then fails with kind `unavailable` and a message without store keys', async () => {
    const clock = new ManualClock();
    const attemptsAt: number[] = [];
    const runAttempt = async (): Promise<never> => {
      attemptsAt.push(clock.now());
      throw new RevisionConflictError('/workload/f36a59', 5n, 6n);
    };
    const random = createSeededRandom(1);
    let failure: unknown;
    const subject = 'workload "default/web"';
    void retryOnConflict({ clock, random, subject }, runAttempt).catch(
      (reason: unknown) => (failure = reason),
    );
    for (let step = 0; failure === undefined && step < 100; step += 1) await clock.advance(100);
    expect(errorKindOf(failure)).toBe('unavailable');
    expect(errorMessageOf(failure)).toBe(
      'workload "default/web" is being changed by other writers: nothing was written after 16 attempts; try again later',
    );
    expect(attemptsAt[1]).toBe(attemptsAt[0]);
    const waits = attemptsAt.slice(2).map((at, index) => at - (attemptsAt[index + 1] ?? 0));
    expect(waits.every((ms) => ms > 0 && ms <= 250)).toBe(true);
    expect(waits.slice(-4).reduce((sum, ms) => sum + ms, 0)).toBeGreaterThan(
      waits.slice(0, 4).reduce((sum, ms) => sum + ms, 0),
    );
  });
});
