import { randomBytes } from 'node:crypto';
import type { Clock, Random } from '@cloudless/base';

/** The machine's own clock, for specs that need real processes. */
export const realClock: Clock = {
  now: () => performance.now(),
  wallTime: () => Date.now(),
  setTimer: (delayMs, action) => {
    const handle = setTimeout(action, Math.max(0, delayMs)).unref();
    return { cancel: () => clearTimeout(handle) };
  },
};

/** The machine's own randomness. */
export const realRandom: Random = {
  next: () => randomBytes(4).readUInt32BE() / 2 ** 32,
  bytes: (count) => new Uint8Array(randomBytes(count)),
};
