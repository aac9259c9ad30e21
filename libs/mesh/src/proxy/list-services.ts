import { Port_Protocol } from '@cloudless/api';
import type { NetworkView } from '../model/network-model.js';
import type { ListedService } from '../ports.js';

/** Returns the services of a namespace by name. */
export function listServices(view: NetworkView, namespace: string): readonly ListedService[] {
  const listed: ListedService[] = [];
  for (const service of view.services.values()) {
    if (service.namespace !== namespace) continue;
    const ports = (service.spec?.ports ?? []).map(({ name, port, protocol }) => ({
      ...{ name, port },
      protocol: protocol === Port_Protocol.UDP ? ('udp' as const) : ('tcp' as const),
    }));
    listed.push({ name: service.name, clusterIp: service.clusterIp, ports });
  }
  return listed.sort((left, right) => (left.name < right.name ? -1 : 1));
}
