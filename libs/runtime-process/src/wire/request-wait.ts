import { CloudlessError } from '@cloudless/base';
import type { ContainerLease } from '@cloudless/runtime';

/**
 * Shortens a lease by the time that its request has waited, and the grace period by the time that
 * has passed since the lease ended. Neither becomes negative.
 */
export function deductWait(lease: ContainerLease, waitedMs: number): ContainerLease {
  const remainingMs = lease.leaseMs - waitedMs;
  return {
    leaseMs: Math.max(0, remainingMs),
    graceMs: Math.max(0, lease.graceMs + Math.min(0, remainingMs)),
  };
}

/**
 * Shortens the lease of a renewal by the time that the renewal has waited.
 * @throws kind `unavailable` when the lease has ended meanwhile. Leave the container alone then: an
 *   earlier lease ends by itself, and a lease of 0 would also end a container that had a longer
 *   lease or none, although its agent never lost contact.
 */
export function deductRenewalWait(lease: ContainerLease, waitedMs: number): ContainerLease {
  const remaining = deductWait(lease, waitedMs);
  // A lease of 0 that the client itself asked for ends the container.
  if (remaining.leaseMs > 0 || lease.leaseMs <= 0) return remaining;
  throw new CloudlessError('unavailable', 'lease: ended before the supervisor read its renewal');
}

/**
 * Returns how long a message has waited in the socket, milliseconds. 0 when the clock of the client
 * is ahead; undefined when a client of an earlier version has not sent the time.
 * @param sentAtMs - Time at which the client sent the message, on the clock of `nowMs`.
 */
export function measureWaitMs(sentAtMs: number | undefined, nowMs: number): number | undefined {
  return sentAtMs === undefined ? undefined : Math.max(0, nowMs - sentAtMs);
}
