import ipaddr from 'ipaddr.js';
import type { ZoneEndpoint, ZoneService } from './zone-records.js';

/** A service with its endpoints. */
export interface ZoneEntry {
  service: ZoneService | undefined;
  readonly endpoints: Map<string, ZoneEndpoint>;
}

/** An address of an endpoint that the zone answers. */
export interface ZoneTarget {
  /** Label of the endpoint below the service: the slot, or the address with hyphens. */
  readonly label: string;
  readonly address: string;
  readonly endpoint: ZoneEndpoint;
}

const keyOf = (namespace: string, name: string): string => `${namespace}/${name}`;

/**
 * Services and endpoints by name and address. The cost of a change does not depend on the number of
 * services. `revision` grows with each change that may change an answer.
 */
export class ZoneData {
  private readonly entries = new Map<string, ZoneEntry>();
  private readonly servicesInNamespace = new Map<string, number>();
  private readonly entryOfEndpoint = new Map<string, ZoneEntry>();
  private readonly entryOfClusterIp = new Map<string, ZoneEntry>();
  /** Addresses of endpoints of headless services, with the ids of the endpoints. */
  private readonly endpointsAtAddress = new Map<string, Set<string>>();
  private changes = 0;

  get revision(): number {
    return this.changes;
  }

  setService(service: ZoneService): void {
    const entry = this.entryOf(service.namespace, service.name);
    const before = entry.service;
    if (before === undefined) this.countNamespace(service.namespace, 1);
    if (before !== undefined && this.entryOfClusterIp.get(before.clusterIp) === entry) {
      this.entryOfClusterIp.delete(before.clusterIp);
    }
    entry.service = service;
    if (service.clusterIp !== '') this.entryOfClusterIp.set(service.clusterIp, entry);
    this.changes += 1;
  }

  removeService(namespace: string, name: string): void {
    const entry = this.entries.get(keyOf(namespace, name));
    if (entry?.service === undefined) return;
    if (this.entryOfClusterIp.get(entry.service.clusterIp) === entry) {
      this.entryOfClusterIp.delete(entry.service.clusterIp);
    }
    entry.service = undefined;
    this.countNamespace(namespace, -1);
    this.dropIfEmpty(namespace, name, entry);
    this.changes += 1;
  }

  setEndpoint(endpoint: ZoneEndpoint): void {
    this.removeEndpoint(endpoint.id);
    const entry = this.entryOf(endpoint.namespace, endpoint.service);
    entry.endpoints.set(endpoint.id, endpoint);
    this.entryOfEndpoint.set(endpoint.id, entry);
    for (const address of addressesOf(endpoint)) {
      const ids = this.endpointsAtAddress.get(address);
      if (ids === undefined) this.endpointsAtAddress.set(address, new Set([endpoint.id]));
      else ids.add(endpoint.id);
    }
    this.noteEndpointChange(entry);
  }

  removeEndpoint(id: string): void {
    const entry = this.entryOfEndpoint.get(id);
    const endpoint = entry?.endpoints.get(id);
    if (entry === undefined || endpoint === undefined) return;
    entry.endpoints.delete(id);
    this.entryOfEndpoint.delete(id);
    for (const address of addressesOf(endpoint)) {
      const ids = this.endpointsAtAddress.get(address);
      ids?.delete(id);
      if (ids?.size === 0) this.endpointsAtAddress.delete(address);
    }
    this.dropIfEmpty(endpoint.namespace, endpoint.service, entry);
    this.noteEndpointChange(entry);
  }

  /** Returns a service with its endpoints. Undefined: no such service. */
  find(namespace: string, name: string): (ZoneEntry & { service: ZoneService }) | undefined {
    const entry = this.entries.get(keyOf(namespace, name));
    return hasService(entry) ? entry : undefined;
  }

  hasNamespace(namespace: string): boolean {
    return this.servicesInNamespace.has(namespace);
  }

  /** Returns the service with a virtual address. */
  findByClusterIp(address: string): ZoneService | undefined {
    return this.entryOfClusterIp.get(address)?.service;
  }

  /** Returns the ready endpoints of headless services at an address, by id. */
  targetsAt(address: string): readonly ZoneTarget[] {
    const ids = [...(this.endpointsAtAddress.get(address) ?? [])].sort();
    return ids.flatMap((id) => {
      const entry = this.entryOfEndpoint.get(id);
      if (!hasService(entry) || !entry.service.headless) return [];
      return readyTargets(entry).filter(
        (target) => target.endpoint.id === id && target.address === address,
      );
    });
  }

  private entryOf(namespace: string, name: string): ZoneEntry {
    const key = keyOf(namespace, name);
    const known = this.entries.get(key);
    if (known !== undefined) return known;
    const entry: ZoneEntry = { service: undefined, endpoints: new Map() };
    this.entries.set(key, entry);
    return entry;
  }

  private dropIfEmpty(namespace: string, name: string, entry: ZoneEntry): void {
    if (entry.service === undefined && entry.endpoints.size === 0) {
      this.entries.delete(keyOf(namespace, name));
    }
  }

  /** Endpoints of services with a virtual address change no answer. */
  private noteEndpointChange(entry: ZoneEntry): void {
    if (entry.service?.headless !== false) this.changes += 1;
  }

  private countNamespace(namespace: string, difference: number): void {
    const count = (this.servicesInNamespace.get(namespace) ?? 0) + difference;
    if (count > 0) this.servicesInNamespace.set(namespace, count);
    else this.servicesInNamespace.delete(namespace);
  }
}

function hasService(entry: ZoneEntry | undefined): entry is ZoneEntry & { service: ZoneService } {
  return entry?.service !== undefined;
}

/** Returns the addresses of the ready endpoints, ordered by label and address. */
export function readyTargets(entry: ZoneEntry): readonly ZoneTarget[] {
  return targetsOf(entry).filter(({ endpoint }) => endpoint.ready);
}

/** Returns the addresses of all endpoints, ordered by label and address. */
export function targetsOf({ endpoints }: ZoneEntry): readonly ZoneTarget[] {
  const targets = [...endpoints.values()].flatMap((endpoint) =>
    addressesOf(endpoint).map((address) => ({
      label: labelOf(endpoint, address),
      address,
      endpoint,
    })),
  );
  return targets.sort(
    (left, right) =>
      left.label.localeCompare(right.label, 'en', { numeric: true }) ||
      left.address.localeCompare(right.address, 'en'),
  );
}

function labelOf({ slot }: ZoneEndpoint, address: string): string {
  return slot === undefined ? address.replace(/[.:]/g, '-') : String(slot);
}

/** A loopback address of another machine would lead to a foreign program of this machine. */
function addressesOf({ ports, local }: ZoneEndpoint): readonly string[] {
  const addresses = new Set<string>();
  for (const { ip } of ports) {
    if (!ipaddr.isValid(ip)) continue;
    const parsed = ipaddr.process(ip);
    if (local || parsed.range() !== 'loopback') {
      addresses.add(
        parsed.kind() === 'ipv6' ? ipaddr.IPv6.parse(ip).toRFC5952String() : parsed.toString(),
      );
    }
  }
  return [...addresses];
}
