import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import {
  NetworkUpdateSchema,
  type NetworkEndpointEntry,
  type NetworkNodeEntry,
  type NetworkRouteEntry,
  type NetworkServiceEntry,
  type NetworkSettings,
  type NetworkUpdate,
} from '@cloudless/api';

/** Keys of the entries that an update has added, changed or removed. */
export interface NetworkChanges {
  readonly settings: boolean;
  /** `<namespace>/<name>` of services that were added, changed or removed. */
  readonly services: ReadonlySet<string>;
  /** `<namespace>/<name>` of services one of whose endpoints was added, changed or removed. */
  readonly endpointsOf: ReadonlySet<string>;
  /** Ids of endpoints that were removed. */
  readonly removedEndpoints: ReadonlySet<string>;
  /** Ids of endpoints that have another replica, node or address by now. */
  readonly movedEndpoints: ReadonlySet<string>;
  /** Ids of nodes that were added, changed or removed. */
  readonly nodes: ReadonlySet<string>;
  /** `<namespace>/<name>` of HTTP routes that were added, changed or removed. */
  readonly routes: ReadonlySet<string>;
}

/** Read access to the network as a proxy knows it. */
export interface NetworkView {
  readonly settings: NetworkSettings | undefined;
  /** By `<namespace>/<name>`. */
  readonly services: ReadonlyMap<string, NetworkServiceEntry>;
  /** By id. */
  readonly endpoints: ReadonlyMap<string, NetworkEndpointEntry>;
  /** By id. */
  readonly nodes: ReadonlyMap<string, NetworkNodeEntry>;
  /** HTTP routes of all nodes, by `<namespace>/<name>`; see {@link listServedRoutes}. */
  readonly routes: ReadonlyMap<string, NetworkRouteEntry>;
  /** Returns the endpoints of a service, by id. */
  endpointsOf(serviceKey: string): ReadonlyMap<string, NetworkEndpointEntry>;
  /** Returns the keys of the services that have an endpoint on a node. */
  servicesOn(nodeId: string): Iterable<string>;
}

/** Returns `<namespace>/<name>`, the key of a service in updates. */
export function toServiceKey(namespace: string, name: string): string {
  return `${namespace}/${name}`;
}

const NO_ENDPOINTS: ReadonlyMap<string, NetworkEndpointEntry> = new Map();

/** Changes of nothing. */
export const NO_CHANGES: NetworkChanges = {
  settings: false,
  services: new Set(),
  endpointsOf: new Set(),
  removedEndpoints: new Set(),
  movedEndpoints: new Set(),
  nodes: new Set(),
  routes: new Set(),
};

/** Collects {@link NetworkChanges}. */
class ChangeSet implements NetworkChanges {
  settings = false;
  readonly services = new Set<string>();
  readonly endpointsOf = new Set<string>();
  readonly removedEndpoints = new Set<string>();
  readonly movedEndpoints = new Set<string>();
  readonly nodes = new Set<string>();
  readonly routes = new Set<string>();
}

/**
 * Returns true when connections to the earlier entry lead elsewhere than connections to the later
 * entry.
 */
function hasMoved(earlier: NetworkEndpointEntry, later: NetworkEndpointEntry): boolean {
  if (earlier.nodeId !== later.nodeId || earlier.replicaId !== later.replicaId) return true;
  return earlier.ports.some(({ name, ip, port }) => {
    const now = later.ports.find((each) => each.name === name);
    return now !== undefined && (now.ip !== ip || now.port !== port);
  });
}

/**
 * The services, endpoints, nodes and HTTP routes of the cluster as the updates of the coordinator
 * describe them. While the coordinator sends everything again, the model stays as it is until the
 * update with `complete`: the updates before that one may describe an earlier state.
 */
export class NetworkModel implements NetworkView {
  settings: NetworkSettings | undefined;
  readonly services = new Map<string, NetworkServiceEntry>();
  readonly endpoints = new Map<string, NetworkEndpointEntry>();
  readonly nodes = new Map<string, NetworkNodeEntry>();
  readonly routes = new Map<string, NetworkRouteEntry>();
  private readonly byService = new Map<string, Map<string, NetworkEndpointEntry>>();
  /** Number of endpoints by node and service. */
  private readonly servicesByNode = new Map<string, Map<string, number>>();
  /** The next state of the model, while the coordinator sends everything again. */
  private next: NetworkModel | undefined;
  private completeRevision = 0n;
  private feedId = '';

  /** Revision of the last complete update. 0n: none. */
  get revision(): bigint {
    return this.completeRevision;
  }

  /**
   * Position at which a new stream may resume. Revision 0n: the coordinator must send everything,
   * because nothing is known or a stream ended while it sent everything.
   */
  get resume(): { readonly afterRevision: bigint; readonly feedId: string } {
    const isWhole = this.next === undefined;
    return { afterRevision: isWhole ? this.completeRevision : 0n, feedId: this.feedId };
  }

  endpointsOf(serviceKey: string): ReadonlyMap<string, NetworkEndpointEntry> {
    return this.byService.get(serviceKey) ?? NO_ENDPOINTS;
  }

  servicesOn(nodeId: string): Iterable<string> {
    return this.servicesByNode.get(nodeId)?.keys() ?? [];
  }

  /**
   * Applies an update and returns what has changed: nothing until an update with `complete` ends a
   * transfer of everything.
   */
  apply(update: NetworkUpdate): NetworkChanges {
    if (update.feedId !== '') this.feedId = update.feedId;
    if (update.reset) this.next = new NetworkModel();
    if (this.next === undefined) return this.applyChanges(update);
    this.next.applyChanges(update);
    if (!update.complete) return NO_CHANGES;
    const everything = this.next.toUpdate();
    this.next = undefined;
    return this.replace(everything);
  }

  /** Applies an update with everything: what it does not mention is gone. */
  private replace(everything: NetworkUpdate): NetworkChanges {
    const services = new Set(this.services.keys());
    const endpoints = new Set(this.endpoints.keys());
    const nodes = new Set(this.nodes.keys());
    const routes = new Set(this.routes.keys());
    for (const { namespace, name } of everything.services)
      services.delete(toServiceKey(namespace, name));
    for (const { id } of everything.endpoints) endpoints.delete(id);
    for (const { id } of everything.nodes) nodes.delete(id);
    for (const { namespace, name } of everything.routes)
      routes.delete(toServiceKey(namespace, name));
    everything.removedServices = [...services];
    everything.removedEndpoints = [...endpoints];
    everything.removedNodes = [...nodes];
    everything.removedRoutes = [...routes];
    return this.applyChanges(everything);
  }

  private applyChanges(update: NetworkUpdate): NetworkChanges {
    const changes = new ChangeSet();
    if (update.settings !== undefined) {
      this.settings = update.settings;
      changes.settings = true;
    }
    for (const service of update.services) this.putService(service, changes);
    for (const endpoint of update.endpoints) this.putEndpoint(endpoint, changes);
    for (const node of update.nodes) {
      this.nodes.set(node.id, node);
      changes.nodes.add(node.id);
    }
    for (const route of update.routes) {
      const key = toServiceKey(route.namespace, route.name);
      this.routes.set(key, route);
      changes.routes.add(key);
    }
    this.removeAll(update.removedServices, update.removedEndpoints, update.removedNodes, changes);
    this.removeRoutes(update.removedRoutes, changes);
    if (update.complete) this.completeRevision = update.revision;
    return changes;
  }

  /** Returns everything that is known, for {@link load}. */
  save(): Uint8Array {
    return toBinary(NetworkUpdateSchema, this.toUpdate());
  }

  private toUpdate(): NetworkUpdate {
    const update = create(NetworkUpdateSchema, {
      revision: this.completeRevision,
      reset: true,
      complete: true,
      services: [...this.services.values()],
      endpoints: [...this.endpoints.values()],
      nodes: [...this.nodes.values()],
      routes: [...this.routes.values()],
    });
    if (this.settings !== undefined) update.settings = this.settings;
    return update;
  }

  /**
   * Takes over what {@link save} returned. The revision stays 0n: the store of the coordinators may
   * be another one by now, so the first stream sends everything.
   * @throws when `snapshot` is damaged; nothing has changed then.
   */
  load(snapshot: Uint8Array): NetworkChanges {
    const changes = this.apply(fromBinary(NetworkUpdateSchema, snapshot));
    this.completeRevision = 0n;
    return changes;
  }

  private putService(service: NetworkServiceEntry, changes: ChangeSet): void {
    const key = toServiceKey(service.namespace, service.name);
    this.services.set(key, service);
    changes.services.add(key);
  }

  private putEndpoint(endpoint: NetworkEndpointEntry, changes: ChangeSet): void {
    const key = toServiceKey(endpoint.namespace, endpoint.service);
    const earlier = this.endpoints.get(endpoint.id);
    if (earlier !== undefined) {
      this.unlink(earlier);
      if (hasMoved(earlier, endpoint)) changes.movedEndpoints.add(endpoint.id);
    }
    this.endpoints.set(endpoint.id, endpoint);
    let siblings = this.byService.get(key);
    if (siblings === undefined) this.byService.set(key, (siblings = new Map()));
    siblings.set(endpoint.id, endpoint);
    this.count(endpoint.nodeId, key, 1);
    changes.endpointsOf.add(key);
  }

  private removeAll(
    services: Iterable<string>,
    endpoints: Iterable<string>,
    nodes: Iterable<string>,
    changes: ChangeSet,
  ): void {
    for (const key of services) {
      if (this.services.delete(key)) changes.services.add(key);
    }
    for (const id of endpoints) {
      const endpoint = this.endpoints.get(id);
      if (endpoint === undefined) continue;
      this.endpoints.delete(id);
      this.unlink(endpoint);
      changes.removedEndpoints.add(id);
      changes.endpointsOf.add(toServiceKey(endpoint.namespace, endpoint.service));
    }
    for (const id of nodes) {
      if (this.nodes.delete(id)) changes.nodes.add(id);
    }
  }

  private removeRoutes(keys: Iterable<string>, changes: ChangeSet): void {
    for (const key of keys) {
      if (this.routes.delete(key)) changes.routes.add(key);
    }
  }

  private count(nodeId: string, key: string, difference: number): void {
    if (nodeId === '') return;
    let counts = this.servicesByNode.get(nodeId);
    if (counts === undefined) this.servicesByNode.set(nodeId, (counts = new Map()));
    const count = (counts.get(key) ?? 0) + difference;
    if (count > 0) counts.set(key, count);
    else counts.delete(key);
    if (counts.size === 0) this.servicesByNode.delete(nodeId);
  }

  private unlink({ id, namespace, service, nodeId }: NetworkEndpointEntry): void {
    const key = toServiceKey(namespace, service);
    this.count(nodeId, key, -1);
    const siblings = this.byService.get(key);
    siblings?.delete(id);
    if (siblings?.size === 0) this.byService.delete(key);
  }
}
