import { randomBytes } from 'node:crypto';
import type { Random } from '@cloudless/base';

/** The cryptographic random source of the operating system, suitable for ids and tokens. */
export const systemRandom: Random = {
  next: () => randomBytes(6).readUIntBE(0, 6) / 2 ** 48,
  bytes: (count) => new Uint8Array(randomBytes(count)),
};
