import type { ContainerRequest } from '@cloudless/runtime';
import { ACCEPTS_DNS_SETTINGS } from '../wire/messages.js';
import { deductStartWait } from '../wire/start-lease.js';
import {
  describeMissingCapability,
  hasCapability,
  requireLeases,
  requireSecrets,
  type ConnectedSupervisor,
} from './supervisor-capabilities.js';

/** A start request for the connected supervisor, which may be older than this client. */
export interface StartRequest {
  readonly request: ContainerRequest;
  /** Why the process does not get the requested DNS settings. */
  readonly dnsProblem?: string;
}

/**
 * Adapts a request to the supervisor: shortens the lease by the time that the request has waited,
 * and leaves out DNS settings that the supervisor would refuse, because missing DNS must not prevent
 * a start.
 * @throws kind `unimplemented` when the supervisor lacks another capability that the request needs,
 *   `unavailable` when the lease has ended.
 */
export function toStartRequest(
  request: ContainerRequest,
  supervisor: ConnectedSupervisor,
  waitedMs: number,
): StartRequest {
  const { lease, network } = request;
  if (lease !== undefined) requireLeases(supervisor);
  if (request.secretEnv !== undefined) requireSecrets(supervisor, 'secretEnv');
  const adapted = deductStartWait(request, waitedMs);
  if (network?.dnsServers === undefined || hasCapability(supervisor, ACCEPTS_DNS_SETTINGS))
    return { request: adapted };
  const { network: _, ...withoutNetwork } = adapted;
  const others = Object.entries(network).filter(([field]) => !field.startsWith('dns'));
  return {
    request:
      others.length === 0 ? withoutNetwork : { ...adapted, network: Object.fromEntries(others) },
    dnsProblem: describeMissingCapability(supervisor, ACCEPTS_DNS_SETTINGS),
  };
}
