import { sleep } from '@cloudless/base';
import { jest } from '@jest/globals';
import { systemClock } from './index.js';

describe('systemClock', () => {
  it('never goes back, and tells fractions of a millisecond', () => {
    const readings = Array.from({ length: 2_000 }, () => systemClock.now());
    expect(readings).toEqual([...readings].sort((a, b) => a - b));
    expect(readings.some((reading) => !Number.isInteger(reading))).toBe(true);
  });

  it('tells the wall time of the machine', () => {
    const before = Date.now();
    const told = systemClock.wallTime();
    expect(told).toBeGreaterThanOrEqual(before);
    expect(told).toBeLessThanOrEqual(Date.now());
  });

  it('fires in the order of delays, once each', async () => {
    const fired: number[] = [];
    await new Promise<void>((resolve) => {
      for (const delayMs of [3, -1, 1, 0]) systemClock.setTimer(delayMs, () => fired.push(delayMs));
      systemClock.setTimer(5, resolve);
    });
    expect([...fired].sort((a, b) => a - b)).toEqual([-1, 0, 1, 3]);
    expect(fired.at(-1)).toBe(3);
  });

  it('does not fire what was cancelled; cancelling twice, or after it fired, does nothing', async () => {
    let fired = 0;
    const cancelled = systemClock.setTimer(1, () => (fired += 1));
    cancelled.cancel();
    cancelled.cancel();
    const done = await new Promise<{ cancel(): void }>((resolve) => {
      const timer = systemClock.setTimer(3, () => resolve(timer));
    });
    done.cancel();
    expect(fired).toBe(0);
  });

  it('does not keep the process alive', () => {
    const set = jest.spyOn(globalThis, 'setTimeout');
    const timer = systemClock.setTimer(60_000, () => undefined);
    expect((set.mock.results[0]?.value as NodeJS.Timeout).hasRef()).toBe(false);
    timer.cancel();
    set.mockRestore();
  });

  it('lets a sleep end by its signal', async () => {
    const stop = new AbortController();
    const nap = sleep(systemClock, 60_000, stop.signal);
    stop.abort();
    await expect(nap).rejects.toMatchObject({ name: 'StoppedError' });
  });
});

describe('long timers', () => {
  const DAY_MS = 86_400_000;
  beforeEach(() => void jest.useFakeTimers());
  afterEach(() => void jest.useRealTimers());

  it.each([1, 2 ** 31 - 1, 2 ** 31, 30 * DAY_MS, 100 * DAY_MS])(
    'one of %i ms fires then, not before',
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

  it('is cancelled also when its first part is over', () => {
    let fired = 0;
    const timer = systemClock.setTimer(60 * DAY_MS, () => (fired += 1));
    jest.advanceTimersByTime(30 * DAY_MS);
    timer.cancel();
    jest.advanceTimersByTime(60 * DAY_MS);
    expect({ fired, left: jest.getTimerCount() }).toEqual({ fired: 0, left: 0 });
  });

  it('of a fraction of a millisecond is not early; an endless one never fires', () => {
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
