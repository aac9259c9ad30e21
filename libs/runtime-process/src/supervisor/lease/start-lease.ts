import { CloudlessError } from '@cloudless/base';
import type { ContainerRequest } from '@cloudless/runtime';
import { deductWait } from '../../wire/request-wait.js';

/**
 * Shortens the lease of a start by the time that the request has waited.
 * @param waitedMs - Undefined: the client, of an earlier version, does not say; the lease is then
 *   left as it is, even when it is 0.
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
  throw new CloudlessError(
    'unavailable',
    'lease: ended before the supervisor of the processes read the start; no process was started',
  );
}
