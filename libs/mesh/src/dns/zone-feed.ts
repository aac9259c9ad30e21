import { Port_Protocol, type NetworkEndpointEntry, type NetworkServiceEntry } from '@cloudless/api';
import {
  DnsZone,
  parseAddressRange,
  type AddressRange,
  type ZoneEndpoint,
  type ZoneService,
} from '@cloudless/network';
import type { NetworkChanges, NetworkView } from '../model/network-model.js';

/** Keeps a {@link DnsZone} equal to the network as a proxy knows it. */
export class ZoneFeed {
  private current: DnsZone | undefined;
  private currentRange: AddressRange | undefined;
  /** Ids of the endpoints in the zone, by service. */
  private readonly endpointIds = new Map<string, Set<string>>();

  /**
   * @param isLocalNode - Returns true for a node on this machine: the loopback addresses of its
   *   replicas lead to them.
   */
  constructor(
    private readonly view: NetworkView,
    private readonly isLocalNode: (nodeId: string) => boolean,
  ) {}

  /** The zone; undefined until the settings of the cluster are known. */
  get zone(): DnsZone | undefined {
    return this.current;
  }

  /** The range of virtual addresses; undefined until the settings of the cluster are known. */
  get range(): AddressRange | undefined {
    return this.currentRange;
  }

  /**
   * Takes over changes of the view. The cost is proportional to the changed services.
   * @param isComplete - True when the view has all services, from a coordinator or a snapshot.
   */
  apply(changes: NetworkChanges, isComplete: boolean): void {
    if (changes.settings || this.current === undefined) this.rebuild();
    else {
      for (const key of changes.services) this.putService(key);
      for (const key of changes.endpointsOf) this.putEndpoints(key);
    }
    if (isComplete) this.current?.markComplete();
  }

  /** Builds the zone again, as when other nodes have become local. */
  rebuild(): void {
    const { settings } = this.view;
    if (settings === undefined || settings.serviceCidr === '') return;
    const range = parseAddressRange(settings.serviceCidr);
    this.currentRange = range;
    this.current = new DnsZone({ clusterDomain: settings.clusterDomain, range });
    this.endpointIds.clear();
    for (const key of this.view.services.keys()) this.putService(key);
    const keys = new Set<string>();
    for (const { namespace, service } of this.view.endpoints.values()) {
      keys.add(`${namespace}/${service}`);
    }
    for (const key of keys) this.putEndpoints(key);
  }

  private putService(key: string): void {
    const entry = this.view.services.get(key);
    const [namespace = '', name = ''] = key.split('/');
    if (entry === undefined) this.current?.removeService(namespace, name);
    else this.current?.setService(toZoneService(entry));
  }

  private putEndpoints(key: string): void {
    const entries = this.view.endpointsOf(key);
    for (const id of this.endpointIds.get(key) ?? []) {
      if (!entries.has(id)) this.current?.removeEndpoint(id);
    }
    if (entries.size === 0) this.endpointIds.delete(key);
    else this.endpointIds.set(key, new Set(entries.keys()));
    for (const entry of entries.values()) {
      this.current?.setEndpoint(toZoneEndpoint(entry, this.isLocalNode(entry.nodeId)));
    }
  }
}

function toZoneService({ namespace, name, clusterIp, spec }: NetworkServiceEntry): ZoneService {
  return {
    namespace,
    name,
    clusterIp,
    headless: spec?.headless ?? false,
    externalName: spec?.externalName ?? '',
    ports: (spec?.ports ?? []).map((port) => ({
      name: port.name,
      port: port.port,
      protocol: port.protocol === Port_Protocol.UDP ? 'udp' : 'tcp',
    })),
  };
}

function toZoneEndpoint(entry: NetworkEndpointEntry, local: boolean): ZoneEndpoint {
  const { id, namespace, service, slot, ready, weight, ports } = entry;
  return {
    id,
    namespace,
    service,
    slot: entry.replicaId === '' ? undefined : slot,
    ready: ready && weight > 0,
    local: local && entry.nodeId !== '',
    ports: ports.map(({ name, ip, port }) => ({ name, ip, port })),
  };
}
