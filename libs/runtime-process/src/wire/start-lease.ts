import { CloudlessError } from '@cloudless/base';
import type { ContainerLease, ContainerRequest } from '@cloudless/runtime';
import { deductWait } from './request-wait.js';

/**
 * Shortens the lease of a start by the time that the request has waited: in the client for its
 * supervisor, then in the socket.
 * @param waitedMs - Undefined when the client is of an earlier version: the lease then counts from
 *   now on, even when it is 0.
 * @throws kind `unavailable` when the lease has ended: the container may have been replaced. The
 *   agent then starts nothing before a coordinator answers again.
 */
export function deductStartWait(
  request: ContainerRequest,
  waitedMs: number | undefined,
): ContainerRequest {
  if (request.lease === undefined || waitedMs === undefined) return request;
  const lease = deductWait(request.lease, waitedMs);
  if (lease.leaseMs > 0) return { ...request, lease };
  throw createLeaseEndedError();
}

/**
 * Checks a lease that {@link deductStartWait} has shortened. Call it directly before the process is
 * started: the supervisor may have stood still since it accepted the request.
 * @param elapsedMs - Milliseconds since the supervisor accepted the request.
 * @throws kind `unavailable` when the lease has ended, like {@link deductStartWait}. A lease of 0
 *   passes: only clients of earlier versions have it.
 */
export function requireStartLease(lease: ContainerLease | undefined, elapsedMs: number): void {
  if (lease === undefined || lease.leaseMs === 0 || elapsedMs < lease.leaseMs) return;
  throw createLeaseEndedError();
}

function createLeaseEndedError(): CloudlessError {
  return new CloudlessError(
    'unavailable',
    'lease: ended before the process could be started; no process was started',
  );
}
