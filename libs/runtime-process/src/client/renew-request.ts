import type { ContainerId } from '@cloudless/base';
import type { ContainerLease } from '@cloudless/runtime';
import type { ClientMessage } from '../wire/messages.js';
import { deductRenewalWait } from '../wire/request-wait.js';

/** The renewals that a client sends to the supervisor. */
export interface RenewRequest {
  readonly leases: Extract<ClientMessage, { type: 'renew' }>['leases'];
  /** Errors of the renewals that are not sent, because their leases have ended. */
  readonly refusals: readonly unknown[];
}

/**
 * Shortens the leases of renewals by the time that the call has waited for a supervisor.
 * @param leases - Undefined removes the lease of a container.
 */
export function toRenewRequest(
  leases: ReadonlyMap<ContainerId, ContainerLease | undefined>,
  waitedMs: number,
): RenewRequest {
  const remaining: (readonly [ContainerId, ContainerLease | null])[] = [];
  const refusals: unknown[] = [];
  for (const [id, lease] of leases) {
    try {
      remaining.push([id, lease === undefined ? null : deductRenewalWait(lease, waitedMs)]);
    } catch (reason) {
      refusals.push(reason);
    }
  }
  return { leases: remaining, refusals };
}
