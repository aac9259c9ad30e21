import type { ContainerLease, ContainerRequest } from '@cloudless/runtime';
import { ACCEPTS_DNS_SETTINGS } from '../wire/messages.js';
import { requireLeases, requireSecrets } from './supervisor-abilities.js';
import type { SupervisorConnection } from './supervisor-connection.js';

/** A start request for the connected supervisor, which may be older than this client. */
export interface StartRequest {
  readonly request: ContainerRequest;
  /** Why the process does not get the requested DNS settings. */
  readonly dnsProblem?: string;
}

/**
 * Adapts a request to the supervisor: shortens the lease by the time that the request has waited, and
 * leaves out DNS settings that the supervisor would refuse, because no start may fail for want of
 * DNS.
 * @throws kind `unimplemented` when the supervisor lacks another requested ability.
 */
export function toStartRequest(
  request: ContainerRequest,
  connection: Pick<SupervisorConnection, 'hello'>,
  waitedMs: number,
): StartRequest {
  const { lease, network } = request;
  if (lease !== undefined) requireLeases(connection);
  if (request.secretEnv !== undefined) requireSecrets(connection, 'secretEnv');
  const adapted =
    lease === undefined ? request : { ...request, lease: deductWait(lease, waitedMs) };
  const { hello } = connection;
  if (
    network?.dnsServers === undefined ||
    hello.capabilities?.includes(ACCEPTS_DNS_SETTINGS) === true
  )
    return { request: adapted };
  const { network: _, ...withoutNetwork } = adapted;
  const others = Object.entries(network).filter(([field]) => !field.startsWith('dns'));
  return {
    request:
      others.length === 0 ? withoutNetwork : { ...adapted, network: Object.fromEntries(others) },
    dnsProblem:
      `the running supervisor (process ${hello.pid}, version ${hello.version}) lacks the capability ${ACCEPTS_DNS_SETTINGS}; a ` +
      'supervisor of an earlier version is replaced when its last container is removed',
  };
}

/** Shortens a lease by the time that its request has waited. */
export function deductWait(lease: ContainerLease, waitedMs: number): ContainerLease {
  return { ...lease, leaseMs: Math.max(0, lease.leaseMs - waitedMs) };
}
