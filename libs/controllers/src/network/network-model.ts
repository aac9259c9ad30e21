import type { ServiceRecord, VersionRecord, WorkloadRecord } from '@cloudless/api/store';
import {
  NETWORK_SETTINGS_KEY,
  createEndpointPortIndex,
  hasEndpoint,
  isReadyEndpoint,
  toEffectiveNode,
  toServiceKeyId,
  type ClusterView,
  type EndpointPortIndex,
  type RecordChange,
} from '@cloudless/cluster-state';
import { dnsAddressOf, parseAddressRange } from '@cloudless/network';
import { drainMarked } from './drain-marked.js';
import {
  encodeNode,
  encodeReplicaEndpoint,
  encodeService,
  encodeSettings,
  type NodeLocation,
} from './entry-encoding.js';
import { EntrySet } from './entry-set.js';
import { ExternalEndpoints } from './external-endpoints.js';
import { RouteEntries } from './route-entries.js';
import { SelectionIndex } from './selection-index.js';
import { describeTraffic, type WorkloadTraffic } from './workload-traffic.js';

/** State that a {@link NetworkModel} reads. */
export interface NetworkSource {
  /** The newest state. The records that it returns do not change. */
  readonly view: () => ClusterView;
  /**
   * Returns true when the lease of a node has ended. Not in the store: see {@link
   * NetworkModel.markNode}.
   */
  readonly isLost: (nodeId: string) => boolean;
}

/** Entries that changed, encoded; undefined stands for a removed entry. */
export interface NetworkChanges {
  /** Undefined: unchanged. */
  readonly settings: Uint8Array | undefined;
  readonly services: ReadonlyMap<string, Uint8Array | undefined>;
  readonly endpoints: ReadonlyMap<string, Uint8Array | undefined>;
  readonly nodes: ReadonlyMap<string, Uint8Array | undefined>;
  readonly routes: ReadonlyMap<string, Uint8Array | undefined>;
}

/**
 * The entries that network proxies need, derived from the records of the cluster: services,
 * endpoints (one for each replica of a workload that a service selects), nodes and HTTP routes.
 *
 * Changes mark what they may concern; {@link update} then derives only that again from the newest
 * view, so the work is proportional to the change. An entry that comes out equal is no change.
 */
export class NetworkModel {
  readonly services = new EntrySet();
  readonly endpoints = new EntrySet();
  readonly nodes = new EntrySet();
  private settings: Uint8Array | undefined;
  private settingsChanged = false;

  private readonly selections = new SelectionIndex();
  /** Of the workloads that a service selects. */
  private readonly traffic = new Map<string, WorkloadTraffic>();
  /** Ids of the replicas with an entry, by service and workload uid. */
  private readonly members = new Map<string, Map<string, Set<string>>>();
  private readonly externals: ExternalEndpoints;
  private readonly routeEntries: RouteEntries;
  private readonly locations = new Map<string, NodeLocation>();
  /** Addresses by version, then by service: both records are replaced when they change. */
  private readonly ports = new WeakMap<VersionRecord, WeakMap<ServiceRecord, EndpointPortIndex>>();

  private readonly markedServices = new Set<string>();
  private readonly markedWorkloads = new Set<string>();
  /** Uids of the workloads, by replica id. */
  private readonly markedReplicas = new Map<string, string>();
  private readonly markedNodes = new Set<string>();
  private markedSettings = true;
  private derivedCount = 0;

  /** Everything in the view is marked at the start. */
  constructor(private readonly source: NetworkSource) {
    this.externals = new ExternalEndpoints(source, this.endpoints);
    this.routeEntries = new RouteEntries(source);
    const view = source.view();
    for (const { value } of view.services())
      this.markedServices.add(toServiceKeyId(value.namespace, value.name));
    for (const { value } of view.workloads()) this.markedWorkloads.add(value.uid);
    for (const { value } of view.nodes()) this.markedNodes.add(value.id);
    for (const [key] of view.externalEndpoints()) this.externals.mark(key);
  }

  /** Number of entries that were derived so far, changed or not. */
  get derivedEntries(): number {
    return this.derivedCount + this.externals.derivedEntries + this.routeEntries.derivedEntries;
  }

  /** The entries of HTTP routes. */
  get routes(): EntrySet {
    return this.routeEntries.entries;
  }

  /** Settings of the network; undefined before the first leader has stored them. */
  get encodedSettings(): Uint8Array | undefined {
    return this.settings;
  }

  /** Returns true when {@link update} has something to do. */
  get isBehind(): boolean {
    return (
      this.markedSettings ||
      this.markedServices.size > 0 ||
      this.markedWorkloads.size > 0 ||
      this.markedReplicas.size > 0 ||
      this.markedNodes.size > 0 ||
      this.externals.isBehind ||
      this.routeEntries.isBehind
    );
  }

  /** Returns true when a replica has an entry, ready or not. */
  hasReplica(replicaId: string, uid: string): boolean {
    for (const key of this.selections.servicesOf(uid))
      if (this.members.get(key)?.get(uid)?.has(replicaId) === true) return true;
    return false;
  }

  /** Marks what changes of records may concern. */
  mark(changes: readonly RecordChange[]): void {
    for (const change of changes) this.markChange(change);
  }

  /** Marks a node whose liveness has changed. */
  markNode(nodeId: string): void {
    this.markedNodes.add(nodeId);
  }

  /**
   * Derives marked entries again.
   * @param most - Entries after which the function returns although more are marked. One service or
   *   workload is derived completely.
   */
  update(most: number): void {
    const end = this.derivedEntries + most;
    const isDone = (): boolean => this.derivedEntries >= end;
    if (this.markedSettings) this.updateSettings();
    drainMarked(this.markedServices, isDone, (key) => this.updateService(key));
    drainMarked(this.markedWorkloads, isDone, (uid) => this.updateWorkload(uid));
    drainMarked(this.markedNodes, isDone, (id) => this.updateNode(id));
    for (const [replicaId, uid] of this.markedReplicas) {
      if (isDone()) break;
      this.markedReplicas.delete(replicaId);
      for (const key of this.selections.servicesOf(uid)) this.updateEndpoint(key, uid, replicaId);
    }
    this.externals.update(isDone);
    this.routeEntries.update(isDone);
  }

  /** Returns and clears the changes since the last call; undefined when there are none. */
  takeChanges(): NetworkChanges | undefined {
    const { services, endpoints, nodes, settingsChanged } = this;
    this.settingsChanged = false;
    const changes = {
      settings: settingsChanged ? this.settings : undefined,
      services: services.takeChanges(),
      endpoints: endpoints.takeChanges(),
      nodes: nodes.takeChanges(),
      routes: this.routes.takeChanges(),
    };
    const count =
      changes.services.size + changes.endpoints.size + changes.nodes.size + changes.routes.size;
    return count > 0 || changes.settings !== undefined ? changes : undefined;
  }

  private markChange({ kind, id, before, after }: RecordChange): void {
    switch (kind) {
      case 'service':
        this.markedServices.add(id);
        return;
      case 'workload':
        this.markedWorkloads.add(id);
        return;
      case 'control':
        if (this.traffic.has(id)) this.markedWorkloads.add(id);
        return;
      case 'version': {
        const uid = id.slice(0, id.indexOf('/'));
        if (this.traffic.has(uid)) this.markedWorkloads.add(uid);
        return;
      }
      case 'replica': {
        const replica = after ?? before;
        const traffic = replica && this.traffic.get(replica.uid);
        if (replica === undefined || traffic === undefined) return;
        this.markedReplicas.set(replica.id, replica.uid);
        if (traffic.dependsOnReplicas) this.markedWorkloads.add(replica.uid);
        return;
      }
      case 'node':
      case 'ban':
        this.markedNodes.add(id);
        return;
      case 'endpoint':
        this.externals.mark(id);
        return;
      case 'route':
        this.routeEntries.mark(id);
        return;
      case 'secret':
        if (before?.uid !== after?.uid || before?.version !== after?.version)
          this.routeEntries.markSecret(id);
        return;
      case 'network':
        if (id === NETWORK_SETTINGS_KEY) this.markedSettings = true;
        return;
      default:
    }
  }

  private updateSettings(): void {
    this.markedSettings = false;
    this.derivedCount += 1;
    const record = this.source.view().networkSettings()?.value;
    if (record === undefined) return;
    const next = encodeSettings(record, dnsAddressOf(parseAddressRange(record.serviceCidr)));
    if (this.settings !== undefined && Buffer.compare(this.settings, next) === 0) return;
    this.settings = next;
    this.settingsChanged = true;
  }

  private updateService(key: string): void {
    const view = this.source.view();
    const service = view.service(key)?.value;
    this.derivedCount += 1;
    this.services.set(key, service && encodeService(service));
    const { removed } = this.selections.setService(
      key,
      service,
      (uid) => view.workload(uid)?.value,
    );
    for (const uid of removed) {
      this.removeMembers(key, uid);
      if (this.selections.servicesOf(uid).size === 0) this.traffic.delete(uid);
    }
    for (const uid of this.selections.workloadsOf(key)) this.updateMembers(key, uid);
    this.externals.markService(key);
  }

  private updateWorkload(uid: string): void {
    const view = this.source.view();
    const record = view.workload(uid)?.value;
    this.derivedCount += 1;
    const { added, removed } = this.selections.setWorkload(
      uid,
      record,
      (key) => view.service(key)?.value,
    );
    for (const key of removed) this.removeMembers(key, uid);
    const services = this.selections.servicesOf(uid);
    if (record === undefined || services.size === 0) {
      this.traffic.delete(uid);
      return;
    }
    const before = this.traffic.get(uid);
    const traffic = describeTraffic(view, record);
    this.traffic.set(uid, traffic);
    const keys = before?.signature === traffic.signature ? added : services;
    for (const key of keys) this.updateMembers(key, uid);
  }

  /** Derives the endpoints of all replicas of a workload for one service. */
  private updateMembers(key: string, uid: string): void {
    const present = new Set<string>();
    for (const { value } of this.source.view().replicasOf(uid)) {
      present.add(value.id);
      this.updateEndpoint(key, uid, value.id);
    }
    for (const replicaId of [...(this.members.get(key)?.get(uid) ?? [])])
      if (!present.has(replicaId)) this.updateEndpoint(key, uid, replicaId);
  }

  private removeMembers(key: string, uid: string): void {
    const group = this.members.get(key);
    for (const replicaId of group?.get(uid) ?? []) this.setEntry(key, replicaId, undefined);
    group?.delete(uid);
    if (group?.size === 0) this.members.delete(key);
  }

  private updateEndpoint(key: string, uid: string, replicaId: string): void {
    this.setMember(key, uid, replicaId, this.encodeEndpoint(key, uid, replicaId));
  }

  private setMember(
    key: string,
    uid: string,
    replicaId: string,
    bytes: Uint8Array | undefined,
  ): void {
    let group = this.members.get(key);
    const ids = group?.get(uid);
    if (bytes === undefined) ids?.delete(replicaId);
    else if (ids !== undefined) ids.add(replicaId);
    else {
      group ??= new Map();
      this.members.set(key, group.set(uid, new Set([replicaId])));
    }
    this.setEntry(key, replicaId, bytes);
  }

  private setEntry(key: string, replicaId: string, bytes: Uint8Array | undefined): void {
    this.derivedCount += 1;
    this.endpoints.set(`${key}/${replicaId}`, bytes);
  }

  /** @returns Undefined when the replica is no endpoint of the service. */
  private encodeEndpoint(key: string, uid: string, replicaId: string): Uint8Array | undefined {
    const view = this.source.view();
    const replica = view.replica(replicaId)?.value;
    const service = view.service(key)?.value;
    const workload = view.workload(uid)?.value;
    const traffic = workload && this.getTraffic(workload);
    if (replica === undefined || !hasEndpoint(replica)) return undefined;
    if (service === undefined || workload === undefined || traffic === undefined) return undefined;
    const ports = this.getPorts(service, view.version(uid, replica.version))(replica);
    if (ports.length === 0) return undefined;
    return encodeReplicaEndpoint({
      ...{ id: `${key}/${replicaId}`, service, workload: workload.name, replica, ports },
      location: this.getLocation(replica.nodeId),
      weight: traffic.getWeight(replica),
      ready: isReadyEndpoint(replica) && traffic.isServing(replica),
      leaving: !replica.desiredRunning,
    });
  }

  private getTraffic(workload: WorkloadRecord): WorkloadTraffic {
    const known = this.traffic.get(workload.uid);
    if (known !== undefined) return known;
    const traffic = describeTraffic(this.source.view(), workload);
    this.traffic.set(workload.uid, traffic);
    return traffic;
  }

  private getPorts(service: ServiceRecord, version: VersionRecord | undefined): EndpointPortIndex {
    if (version === undefined) return () => [];
    let byService = this.ports.get(version);
    if (byService === undefined) this.ports.set(version, (byService = new WeakMap()));
    const known = byService.get(service);
    if (known !== undefined) return known;
    const index = createEndpointPortIndex(service, version.template?.ports ?? []);
    byService.set(service, index);
    return index;
  }

  private getLocation(nodeId: string): NodeLocation {
    const known = this.locations.get(nodeId);
    if (known !== undefined) return known;
    const node = this.source.view().node(nodeId)?.value;
    if (node === undefined) return { zone: '', region: '' };
    const { zone, region } = toEffectiveNode(node);
    const location = { zone, region };
    this.locations.set(nodeId, location);
    return location;
  }

  private updateNode(id: string): void {
    this.derivedCount += 1;
    const view = this.source.view();
    const node = view.node(id)?.value;
    const isListed = node !== undefined && view.nodeBan(id) === undefined;
    this.nodes.set(id, isListed ? encodeNode(node, !this.source.isLost(id)) : undefined);
    const before = this.locations.get(id);
    this.locations.delete(id);
    if (before !== undefined) {
      const after = this.getLocation(id);
      if (before.zone !== after.zone || before.region !== after.region)
        for (const { value } of view.replicasOn(id)) this.markedReplicas.set(value.id, value.uid);
    }
    this.externals.markNode(id);
    this.routeEntries.markNode(id);
  }
}
