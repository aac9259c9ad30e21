import { performance } from 'node:perf_hooks';
import type { Clock, Timer } from '@cloudless/base';

/**
 * The machine's clock: monotonic `now`, wall-clock `wallTime`, timers of any length that do not
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
    arm(Math.ceil(Math.max(0, delayMs))); // Node cuts off fractions, which would be early
    return { cancel: () => clearTimeout(handle) };
  },
};

/**
 * Node's longest timeout, 24.8 days: its delay is a signed 32-bit number, and it fires a longer one
 * at once.
 */
const MAX_TIMEOUT_MS = 2 ** 31 - 1;
