import { RESOLVER_NDOTS, searchDomains } from '@cloudless/network';
import type { NetworkRequest } from '@cloudless/runtime';
import type { ReachableService, ServiceAccess } from './node-network.js';

/**
 * Largest number of services in the environment of a process, sorted by name: the kernel limits the
 * size of an environment, and all processes of a namespace pay for every variable.
 */
export const MAX_SERVICES_IN_ENVIRONMENT = 200;

/** Prefix of the variables that name services. */
const PREFIX = 'CLOUDLESS_SERVICE_';

/**
 * Returns environment variables with the addresses of services: `CLOUDLESS_SERVICE_<NAME>_HOST`,
 * `_PORT` and `_ADDR` (`host:port`) for the first port, and `_PORT_<PORT NAME>` for each named port.
 * Names are in upper case with `_` instead of `-`; of two services with the same variables the first
 * by name has them.
 */
export function createServiceVariables(
  services: readonly ReachableService[],
): Readonly<Record<string, string>> {
  const variables: Record<string, string> = {};
  const sorted = [...services].sort((a, b) => (a.name < b.name ? -1 : 1));
  for (const { name, address, ports } of sorted.slice(0, MAX_SERVICES_IN_ENVIRONMENT)) {
    const key = `${PREFIX}${toVariableName(name)}`;
    const [first] = ports;
    if (first === undefined || `${key}_HOST` in variables) continue;
    variables[`${key}_HOST`] = address;
    variables[`${key}_PORT`] = String(first.port);
    variables[`${key}_ADDR`] = `${address}:${first.port}`;
    for (const { name: portName, port } of ports)
      if (portName !== '') variables[`${key}_PORT_${toVariableName(portName)}`] = String(port);
  }
  return variables;
}

/**
 * Returns the DNS settings of a process or container: the DNS server of the node, and search domains
 * with which `web`, `web.shop` and `web.shop.svc` are names of services. The resolver looks names
 * with few dots up in the cluster first.
 */
export function createDnsSettings(
  { server, domain }: NonNullable<ServiceAccess['dns']>,
  namespace: string,
): Required<Pick<NetworkRequest, 'dnsServers' | 'dnsSearches' | 'dnsOptions'>> {
  return {
    dnsServers: [server],
    dnsSearches: searchDomains(namespace, domain),
    dnsOptions: [`ndots:${RESOLVER_NDOTS}`],
  };
}

function toVariableName(name: string): string {
  return name.toUpperCase().replace(/[^A-Z0-9]/g, '_');
}
