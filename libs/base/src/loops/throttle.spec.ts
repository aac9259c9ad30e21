import fc from 'fast-check';
import { ManualClock } from '../testing/index.js';
import { Throttle, type SuppressedEvents } from './throttle.js';

/** The state of one key in the model of a throttle. */
interface Bucket {
  readonly tokens: number;
  /** Time of the last event, on the monotonic clock. */
  readonly atMs: number;
  readonly suppressed: SuppressedEvents | undefined;
}

const aFullBucket = (tokens: number, atMs: number): Bucket => ({
  tokens,
  atMs,
  suppressed: undefined,
});

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
    const arbSteps = fc.array(fc.tuple(fc.constantFrom('a', 'b'), fc.nat(800)), { size: '+1' });
    await fc.assert(
      fc.asyncProperty(arbSteps, fc.integer({ min: 1, max: 4 }), async (steps, burst) => {
        const clock = new ManualClock();
        const throttle = new Throttle({ clock, burst, everyMs });
        const buckets = new Map<string, Bucket>();
        for (const [key, pauseMs] of steps) {
          await clock.advance(pauseMs);
          const bucket = buckets.get(key) ?? aFullBucket(burst, clock.now());
          const added = (clock.now() - bucket.atMs) / everyMs;
          const tokens = Math.min(burst, bucket.tokens + added);
          const atMs = clock.now();
          if (tokens >= 1) {
            const { suppressed } = bucket;
            expect(throttle.take(key)).toEqual({ passes: true, suppressed });
            buckets.set(key, { tokens: tokens - 1, atMs, suppressed: undefined });
          } else {
            const waitMs = (1 - tokens) * everyMs;
            expect(throttle.take(key)).toEqual({ passes: false, waitMs });
            const { count, sinceMs } = bucket.suppressed ?? { count: 0, sinceMs: clock.wallTime() };
            buckets.set(key, { tokens, atMs, suppressed: { count: count + 1, sinceMs } });
          }
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

  it('forgets the suppressed events of a key together with the key', () => {
    const throttle = new Throttle({
      clock: new ManualClock(),
      burst: 1,
      everyMs: 1_000,
      maxKeys: 2,
    });
    for (const key of ['a', 'a', 'b', 'c']) throttle.take(key);
    expect(throttle.take('a')).toEqual({ passes: true, suppressed: undefined });
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
