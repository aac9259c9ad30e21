import { performance } from 'node:perf_hooks';
import type { Clock, Timer } from '@cloudless/base';

/**
 * The machine's clock: monotonic `now`, wall-clock `wallTime`, and timers of any length that do not
 * keep the process alive.
 */
export const systemClock: Clock = {
  now: () => performance.now(),
  wallTime: () => Date.now(),
  setTimer: (delayMs, action): Timer => {
    let handle: NodeJS.Timeout;
    const scheduleStep = (remainingMs: number): void => {
      const stepMs = Math.min(remainingMs, MAX_TIMEOUT_MS);
      handle = setTimeout(
        () => (remainingMs > stepMs ? scheduleStep(remainingMs - stepMs) : action()),
        stepMs,
      );
      handle.unref();
    };
    // Rounded up, because Node truncates fractions and the timer would be early.
    scheduleStep(Math.ceil(Math.max(0, delayMs)));
    return { cancel: () => clearTimeout(handle) };
  },
};

/**
 * Longest timeout of Node, 24.8 days (a signed 32-bit number). Node fires longer timers at once.
 */
const MAX_TIMEOUT_MS = 2 ** 31 - 1;
