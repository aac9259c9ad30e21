import { Port_Protocol, type NetworkServiceEntry } from '@cloudless/api';
import type { NetworkView } from '../model/network-model.js';
import type { ListedService, ServiceAddress } from '../ports.js';

/** Returns the services of a namespace by name. */
export function listServices(view: NetworkView, namespace: string): readonly ListedService[] {
  const listed: ListedService[] = [];
  for (const service of view.services.values()) {
    if (service.namespace !== namespace) continue;
    const ports = toListedPorts(service);
    listed.push({ name: service.name, clusterIp: service.clusterIp, ports });
  }
  return listed.sort((left, right) => (left.name < right.name ? -1 : 1));
}

/**
 * Returns the virtual addresses of services, sorted by address, each once. Services without a
 * virtual address have none.
 * @param patterns - `<namespace>/<name>`, `<namespace>/*` for a namespace, or `*` for all services.
 *   Other texts match nothing.
 */
export function listServiceAddresses(
  { services }: Pick<NetworkView, 'services'>,
  patterns: readonly string[],
): readonly ServiceAddress[] {
  const found = new Set<NetworkServiceEntry>();
  for (const pattern of patterns) {
    const service = services.get(pattern);
    if (service !== undefined) found.add(service);
  }
  const matchesAll = patterns.includes('*');
  const namespaces = new Set(
    patterns.flatMap((pattern) => (pattern.endsWith('/*') ? [pattern.slice(0, -2)] : [])),
  );
  if (matchesAll || namespaces.size > 0)
    for (const service of services.values())
      if (matchesAll || namespaces.has(service.namespace)) found.add(service);
  return [...found]
    .filter(({ clusterIp }) => clusterIp !== '')
    .map((service) => ({ address: service.clusterIp, ports: toListedPorts(service) }))
    .sort((left, right) => (left.address < right.address ? -1 : 1));
}

/** Returns the ports of a service, in the order of its spec. */
function toListedPorts({ spec }: NetworkServiceEntry): ListedService['ports'] {
  return (spec?.ports ?? []).map(({ name, port, protocol }) => ({
    ...{ name, port },
    protocol: protocol === Port_Protocol.UDP ? 'udp' : 'tcp',
  }));
}
