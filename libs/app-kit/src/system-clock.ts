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
    const arm = (remainingMs: number): void => {
      const stepMs = Math.min(remainingMs, MAX_TIMEOUT_MS);
      handle = setTimeout(
        () => (remainingMs > stepMs ? arm(remainingMs - stepMs) : action()),
        stepMs,
      );
      handle.unref();
    };
    arm(Math.ceil(Math.max(0, delayMs))); // Node truncates fractions, so the timer would be early
    return { cancel: () => clearTimeout(handle) };
  },
};

/** Node's longest timeout, 24.8 days (a signed 32-bit number). Node fires longer ones at once. */
const MAX_TIMEOUT_MS = 2 ** 31 - 1;
