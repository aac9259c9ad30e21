import { Port_Protocol, type NetworkServiceEntry } from '@cloudless/api';
import type { Random } from '@cloudless/base';
import type { OpenConnections, Place } from '@cloudless/network';
import { NO_CHANGES, type NetworkChanges, type NetworkView } from '../model/network-model.js';
import type { EndedReplicas } from './ended-replicas.js';
import { ServicePort, type EndpointTarget } from './service-port.js';
import { toServiceSettings } from './service-settings.js';

interface KnownService {
  readonly uid: string;
  readonly connections: OpenConnections;
  readonly ports: Map<string, ServicePort>;
}

/** Effects of a change of the network on services and connections. */
export interface TableChanges {
  /** Services whose addresses, ports or ready endpoints may have changed. */
  readonly services: ReadonlySet<string>;
  /** Endpoints that receive new connections no longer, with their port. */
  readonly unready: readonly { readonly port: ServicePort; readonly endpointId: string }[];
}

/** The ports of all services with their balancers, kept up to date with the network. */
export class ServiceTable {
  private readonly known = new Map<string, KnownService>();

  /**
   * @param isLocalNode - Returns true for a node in this network namespace: its replicas are as
   *   near as those of the own node.
   * @param ended - Replicas that receive no connections whatever the view says. Default: none.
   */
  constructor(
    private readonly view: NetworkView,
    private readonly here: Place,
    private readonly random: Random,
    private readonly isLocalNode: (nodeId: string) => boolean,
    private readonly ended: Pick<EndedReplicas, 'has'> = { has: () => false },
  ) {}

  /** All ports, for metrics. */
  *ports(): Iterable<ServicePort> {
    for (const { ports } of this.known.values()) yield* ports.values();
  }

  port(serviceKey: string, name: string): ServicePort | undefined {
    return this.known.get(serviceKey)?.ports.get(name);
  }

  /** Applies a change. The cost is proportional to the endpoints of the changed services. */
  apply(changes: NetworkChanges): TableChanges {
    const services = new Set([...changes.services, ...changes.endpointsOf]);
    for (const nodeId of changes.nodes)
      for (const key of this.view.servicesOn(nodeId)) services.add(key);
    const unready: { port: ServicePort; endpointId: string }[] = [];
    for (const key of services) {
      const entry = this.view.services.get(key);
      if (entry === undefined) this.known.delete(key);
      else this.update(key, entry, unready);
    }
    return { services, unready };
  }

  /** Notes that other nodes have become local. */
  noteLocalNodes(nodeIds: readonly string[]): void {
    this.apply({ ...NO_CHANGES, nodes: new Set(nodeIds) });
  }

  /** Returns the services one of whose replicas is known to have ended. */
  endedServices(): ReadonlySet<string> {
    const services = new Set<string>();
    for (const nodeId of this.view.nodes.keys()) {
      if (!this.isLocalNode(nodeId)) continue;
      for (const key of this.view.servicesOn(nodeId))
        for (const endpoint of this.view.endpointsOf(key).values())
          if (this.ended.has(endpoint)) services.add(key);
    }
    return services;
  }

  private update(
    key: string,
    entry: NetworkServiceEntry,
    unready: { port: ServicePort; endpointId: string }[],
  ): void {
    let known = this.known.get(key);
    if (known?.uid !== entry.uid) {
      known = { uid: entry.uid, connections: { count: 0 }, ports: new Map() };
      this.known.set(key, known);
    }
    const settings = toServiceSettings(entry);
    const names = new Set<string>();
    for (const { name, protocol } of entry.spec?.ports ?? []) {
      names.add(name);
      const wanted = protocol === Port_Protocol.UDP ? 'udp' : 'tcp';
      let port = known.ports.get(name);
      if (port?.protocol !== wanted) {
        const { here, random } = this;
        port = new ServicePort(key, name, wanted, settings, here, random, known.connections);
        known.ports.set(name, port);
      } else port.configure(settings);
      for (const endpointId of port.setTargets(this.targetsOf(key, name)))
        unready.push({ port, endpointId });
    }
    for (const name of known.ports.keys()) if (!names.has(name)) known.ports.delete(name);
  }

  private targetsOf(serviceKey: string, portName: string): EndpointTarget[] {
    const targets: EndpointTarget[] = [];
    for (const endpoint of this.view.endpointsOf(serviceKey).values()) {
      const found = endpoint.ports.find(({ name }) => name === portName);
      if (found === undefined) continue;
      const isReachable =
        endpoint.nodeId === '' || this.view.nodes.get(endpoint.nodeId)?.alive === true;
      const { ip, port } = found;
      const isReady = endpoint.ready && isReachable && !this.ended.has(endpoint);
      const isLocal = endpoint.nodeId !== '' && this.isLocalNode(endpoint.nodeId);
      targets.push({ endpoint, portName, ip, port, isReady, isLocal });
    }
    return targets;
  }
}
