import fc from 'fast-check';
import { ManualClock } from '../testing/index.js';
import { Throttle } from './throttle.js';

describe('Throttle', () => {
  it('passes a burst, then one event per interval with the number of suppressed events', async () => {
    const clock = new ManualClock();
    const throttle = new Throttle({ clock, burst: 2, everyMs: 1_000 });
    expect(throttle.take('a')).toEqual({ passes: true, suppressed: undefined });
    expect(throttle.take('a')).toEqual({ passes: true, suppressed: undefined });
    const sinceMs = clock.wallTime();
    expect(throttle.take('a')).toEqual({ passes: false, waitMs: 1_000 });
    await clock.advance(400);
    expect(throttle.take('a')).toEqual({ passes: false, waitMs: 600 });
    expect(throttle.take('b').passes).toBe(true);
    await clock.advance(600);
    expect(throttle.take('a')).toEqual({ passes: true, suppressed: { count: 2, sinceMs } });
    expect(throttle.take('a').passes).toBe(false);
  });

  it('decides as a bucket of each key that is filled with one token per interval', async () => {
    // A power of 2, so that parts of tokens are exact.
    const everyMs = 1_024;
    const arbSteps = fc.array(fc.tuple(fc.constantFrom('a', 'b'), fc.nat(2_000)), { size: '+1' });
    await fc.assert(
      fc.asyncProperty(arbSteps, fc.integer({ min: 1, max: 4 }), async (steps, burst) => {
        const clock = new ManualClock();
        const throttle = new Throttle({ clock, burst, everyMs });
        const buckets = new Map<string, { tokens: number; atMs: number }>();
        for (const [key, pauseMs] of steps) {
          await clock.advance(pauseMs);
          const bucket = buckets.get(key) ?? { tokens: burst, atMs: clock.now() };
          const added = (clock.now() - bucket.atMs) / everyMs;
          const tokens = Math.min(burst, bucket.tokens + added);
          const passes = tokens >= 1;
          const expected = passes ? { passes } : { passes, waitMs: (1 - tokens) * everyMs };
          expect(throttle.take(key)).toMatchObject(expected);
          buckets.set(key, { tokens: passes ? tokens - 1 : tokens, atMs: clock.now() });
        }
      }),
    );
  });

  it('forgets the least recently used key when there are more keys than maxKeys', () => {
    const throttle = new Throttle({
      clock: new ManualClock(),
      burst: 1,
      everyMs: 1_000,
      maxKeys: 2,
    });
    throttle.take('a');
    throttle.take('b');
    throttle.take('a');
    throttle.take('c');
    expect(throttle.take('a').passes).toBe(false);
    expect(throttle.take('b').passes).toBe(true);
  });

  it('forgets the least recently used keys together, at an eighth more keys than maxKeys', () => {
    const throttle = new Throttle({
      clock: new ManualClock(),
      burst: 1,
      everyMs: 1_000,
      maxKeys: 16,
    });
    for (let key = 0; key < 18; key += 1) throttle.take(`${key}`);
    expect(throttle.take('0').passes).toBe(false);
    throttle.take('18');
    const forgotten = Array.from({ length: 19 }, (_, key) => `${key}`).filter(
      (key) => throttle.take(key).passes,
    );
    expect(forgotten.slice(0, 3)).toEqual(['1', '2', '3']);
  });
});
