import { jest } from '@jest/globals';
import { sleep } from '@cloudless/base';
import { systemClock } from './index.js';

describe('systemClock', () => {
  it('is monotonic and has fractions of a millisecond', () => {
    const readings = Array.from({ length: 2_000 }, () => systemClock.now());
    expect(readings).toEqual([...readings].sort((a, b) => a - b));
    expect(readings.some((reading) => !Number.isInteger(reading))).toBe(true);
  });

  it('returns the wall time of the machine', () => {
    const before = Date.now();
    const reading = systemClock.wallTime();
    expect(reading).toBeGreaterThanOrEqual(before);
    expect(reading).toBeLessThanOrEqual(Date.now());
  });

  it('fires each timer once, and the timer with the longest delay last', async () => {
    const fired: number[] = [];
    await new Promise<void>((resolve) => {
      for (const delayMs of [3, -1, 1, 0]) systemClock.setTimer(delayMs, () => fired.push(delayMs));
      systemClock.setTimer(5, resolve);
    });
    expect([...fired].sort((a, b) => a - b)).toEqual([-1, 0, 1, 3]);
    expect(fired.at(-1)).toBe(3);
  });

  it('does not fire a cancelled timer and ignores repeated or late cancellation', async () => {
    let fired = 0;
    const cancelled = systemClock.setTimer(1, () => (fired += 1));
    cancelled.cancel();
    cancelled.cancel();
    const firedTimer = await new Promise<{ cancel(): void }>((resolve) => {
      const timer = systemClock.setTimer(3, () => resolve(timer));
    });
    firedTimer.cancel();
    expect(fired).toBe(0);
  });

  it('does not keep the process alive by a pending timer', () => {
    const setTimeoutSpy = jest.spyOn(globalThis, 'setTimeout');
    const timer = systemClock.setTimer(60_000, () => undefined);
    expect((setTimeoutSpy.mock.results[0]?.value as NodeJS.Timeout).hasRef()).toBe(false);
    timer.cancel();
    setTimeoutSpy.mockRestore();
  });

  it('rejects a sleep when its signal is aborted', async () => {
    const stop = new AbortController();
    const sleeping = sleep(systemClock, 60_000, stop.signal);
    stop.abort();
    await expect(sleeping).rejects.toMatchObject({ name: 'StoppedError' });
  });
});

describe('systemClock.setTimer', () => {
  const DAY_MS = 86_400_000;
  beforeEach(() => void jest.useFakeTimers());
  afterEach(() => void jest.useRealTimers());

  it.each([1, 2 ** 31 - 1, 2 ** 31, 30 * DAY_MS, 100 * DAY_MS])(
    'fires a timer of %i ms once, after exactly that time',
    (delayMs) => {
      let fired = 0;
      systemClock.setTimer(delayMs, () => (fired += 1));
      jest.advanceTimersByTime(delayMs - 1);
      expect(fired).toBe(0);
      jest.advanceTimersByTime(1);
      expect(fired).toBe(1);
      jest.advanceTimersByTime(200 * DAY_MS);
      expect(fired).toBe(1);
    },
  );

  it('cancels a timer of 60 days after 30 days', () => {
    let fired = 0;
    const timer = systemClock.setTimer(60 * DAY_MS, () => (fired += 1));
    jest.advanceTimersByTime(30 * DAY_MS);
    timer.cancel();
    jest.advanceTimersByTime(60 * DAY_MS);
    expect({ fired, left: jest.getTimerCount() }).toEqual({ fired: 0, left: 0 });
  });

  it('rounds fractions of a millisecond up, and never fires a timer with an infinite delay', () => {
    let fired = 0;
    systemClock.setTimer(2.5, () => (fired += 1));
    systemClock.setTimer(Number.POSITIVE_INFINITY, () => (fired += 100));
    jest.advanceTimersByTime(2);
    expect(fired).toBe(0);
    jest.advanceTimersByTime(1);
    expect(fired).toBe(1);
    jest.advanceTimersByTime(300 * DAY_MS);
    expect(fired).toBe(1);
  });
});
