import type { LeaseId } from '@cloudless/state-store';

/**
 * The row for a key on a lease. The ids of leases hold no NUL, so that one lease's keys are
 * neighbours.
 */
export function leasedKey(lease: LeaseId, key: string): Buffer {
  return Buffer.from(`${lease}\0${key}`);
}
