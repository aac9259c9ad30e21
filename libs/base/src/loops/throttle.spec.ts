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
