import { randomBytes } from 'node:crypto';
import type { Random } from '@cloudless/base';

/** The operating system's cryptographic random source. */
export const systemRandom: Random = {
  next: () => randomBytes(6).readUIntBE(0, 6) / 2 ** 48,
  bytes: (count) => new Uint8Array(randomBytes(count)),
};
