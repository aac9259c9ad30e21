import type { LeaseId } from '@cloudless/state-store';

/**
 * Returns the key in table `leasedKeys` for an entry on a lease. Lease ids contain no NUL, so the
 * keys of one lease are adjacent.
 */
export function encodeLeasedKey(lease: LeaseId, key: string): Buffer {
  return Buffer.from(`${lease}\0${key}`);
}
