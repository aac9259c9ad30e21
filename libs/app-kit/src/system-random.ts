import { randomBytes, randomFillSync } from 'node:crypto';
import type { Random } from '@cloudless/base';

/** Bytes of one number. */
const NUMBER_BYTES = 6;
/** Random bytes for the next numbers. One call of the system costs as much as 500 numbers. */
const pool = Buffer.alloc(512 * NUMBER_BYTES);
let used = pool.length;

/** The cryptographic random source of the operating system, suitable for ids and tokens. */
export const systemRandom: Random = {
  next: () => {
    if (used === pool.length) {
      randomFillSync(pool);
      used = 0;
    }
    const number = pool.readUIntBE(used, NUMBER_BYTES);
    // A number that was drawn cannot be read again.
    pool.fill(0, used, used + NUMBER_BYTES);
    used += NUMBER_BYTES;
    return number / 2 ** 48;
  },
  bytes: (count) => new Uint8Array(randomBytes(count)),
};
