import { randomBytes } from 'node:crypto';
import { performance } from 'node:perf_hooks';
import type { Clock, Random, Timer } from '@cloudless/base';

/** The machine's clock: monotonic `now`, wall-clock `wallTime`, timers that do not keep the process alive. */
export const systemClock: Clock = {
  now: () => performance.now(),
  wallTime: () => Date.now(),
  setTimer: (delayMs, action): Timer => {
    const handle = setTimeout(action, Math.min(Math.max(0, delayMs), MAX_TIMEOUT_MS));
    handle.unref();
    return { cancel: () => clearTimeout(handle) };
  },
};

/** Node fires a longer timeout at once (its delay is a signed 32-bit number). */
const MAX_TIMEOUT_MS = 2 ** 31 - 1;

/** The operating system's cryptographic source. */
export const systemRandom: Random = {
  next: () => randomBytes(6).readUIntBE(0, 6) / 2 ** 48,
  bytes: (count) => new Uint8Array(randomBytes(count)),
};
