import type { Event } from '@cloudless/api';
import type {
  AccessTokenRecord,
  ConfigRecord,
  EndpointRecord,
  NodeRecord,
  ReplicaRecord,
  RouteRecord,
  SecretRecord,
  ServiceRecord,
  VersionRecord,
  WorkloadRecord,
} from '@cloudless/api/store';
import type { Revision } from '@cloudless/state-store';
import { toNameKeyId, type RecordKind, type RecordOf } from '../records/records.js';
import { waitsForNode } from '../records/replicas.js';
import type { ClusterView } from './cluster-view.js';
import { EventIndex, type EventSubject } from './event-index.js';
import type { RecordChange, Stored } from './record-change.js';
import { RecordMaps } from './record-maps.js';
import type { ReplicaCounts } from './replica-counts.js';
import { ServiceIndex } from './service-index.js';
import { SortedKeys } from './sorted-keys.js';

export type { ClusterView, RecordChange, Stored };

/**
 * Replicas by node. Lists, because a node has a few hundred replicas: a map for each node would take
 * five times the memory and the time to fill.
 */
type ReplicaGroups = Map<string, Stored<ReplicaRecord>[]>;

/** The indexed view that `ClusterState` maintains. */
export class IndexedView extends RecordMaps implements ClusterView {
  revision: Revision = 0n;
  /** Sum of the bytes of keys and values before and after each change of {@link apply}. */
  changedBytes = 0;
  private readonly replicasByNode: ReplicaGroups = new Map();
  private readonly unplacedReplicas = new Map<string, Stored<ReplicaRecord>>();
  private readonly lostById = new Map<string, Stored<ReplicaRecord>>();
  private readonly drainingById = new Map<string, Stored<NodeRecord>>();
  private readonly sortedNodeIds = new SortedKeys();
  private readonly sortedRouteKeys = new SortedKeys();
  private readonly sortedConfigKeys = new SortedKeys();
  private readonly sortedSecretKeys = new SortedKeys();
  /** Keys of all workloads, and the uid that each key belongs to. */
  private readonly sortedWorkloadNames = new SortedKeys();
  private readonly uidsByName = new Map<string, string>();
  /** Access tokens by the uid of their secret, then by id. */
  private readonly tokensBySecret = new Map<string, Map<string, Stored<AccessTokenRecord>>>();
  private readonly versionsByWorkload = new Map<string, Map<number, VersionRecord>>();
  /** All events, sorted by id, beside those that were removed since the last read. */
  private eventList: Event[] | undefined;
  private readonly removedEventIds = new Set<string>();
  private readonly eventIndex = new EventIndex();
  private readonly serviceIndex = new ServiceIndex({
    services: this.byKind.service,
    workloads: this.byKind.workload,
    endpoints: this.byKind.endpoint,
  });

  *workloadsByName(after?: string): Generator<Stored<WorkloadRecord>, void> {
    for (const key of this.sortedWorkloadNames.after(after)) {
      const workload = this.byKind.workload.get(this.uidsByName.get(key) ?? '');
      if (workload !== undefined) yield workload;
    }
  }

  version(uid: string, version: number): VersionRecord | undefined {
    return this.versionsByWorkload.get(uid)?.get(version);
  }

  versions(uid: string): readonly VersionRecord[] {
    return [...(this.versionsByWorkload.get(uid)?.values() ?? [])].sort(
      (a, b) => a.version - b.version,
    );
  }

  replica(id: string): Stored<ReplicaRecord> | undefined {
    return this.replicaTable.getById(id);
  }

  replicas(): Iterable<Stored<ReplicaRecord>> {
    return this.replicaTable.values();
  }

  replicasOf(uid: string): Iterable<Stored<ReplicaRecord>> {
    return this.replicaTable.ofWorkload(uid);
  }

  replicasInOrder(uid: string, after?: number): Iterable<Stored<ReplicaRecord>> {
    return this.replicaTable.ofWorkloadInOrder(uid, after);
  }

  replicaCounts(uid: string): ReplicaCounts {
    return this.replicaTable.countsOf(uid);
  }

  replicasOn(nodeId: string): Iterable<Stored<ReplicaRecord>> {
    return this.replicasByNode.get(nodeId) ?? [];
  }

  unplaced(): Iterable<Stored<ReplicaRecord>> {
    return this.unplacedReplicas.values();
  }

  lostReplicas(): Iterable<Stored<ReplicaRecord>> {
    return this.lostById.values();
  }

  *nodesById(after?: string): Generator<Stored<NodeRecord>, void> {
    for (const id of this.sortedNodeIds.after(after)) {
      const node = this.byKind.node.get(id);
      if (node !== undefined) yield node;
    }
  }

  *routesByName(after?: string): Generator<Stored<RouteRecord>, void> {
    for (const key of this.sortedRouteKeys.after(after)) {
      const route = this.byKind.route.get(key);
      if (route !== undefined) yield route;
    }
  }

  *configsByName(after?: string): Generator<Stored<ConfigRecord>, void> {
    for (const key of this.sortedConfigKeys.after(after)) {
      const config = this.byKind.config.get(key);
      if (config !== undefined) yield config;
    }
  }

  *secretsByName(after?: string): Generator<Stored<SecretRecord>, void> {
    for (const key of this.sortedSecretKeys.after(after)) {
      const secret = this.byKind.secret.get(key);
      if (secret !== undefined) yield secret;
    }
  }

  accessTokensOf(secretUid: string): Iterable<Stored<AccessTokenRecord>> {
    return this.tokensBySecret.get(secretUid)?.values() ?? [];
  }

  drainingNodes(): Iterable<Stored<NodeRecord>> {
    return this.drainingById.values();
  }

  events(): readonly Event[] {
    this.eventList ??= [...this.byKind.event.values()]
      .map(({ value }) => value)
      .sort((a, b) => (a.id < b.id ? -1 : 1));
    if (this.removedEventIds.size > 0) {
      this.eventList = this.eventList.filter(({ id }) => !this.removedEventIds.has(id));
      this.removedEventIds.clear();
    }
    return this.eventList;
  }

  auditEventsOfSecret(key: string): readonly Event[] {
    return this.eventIndex.listOfSecret(key);
  }

  lastEventOfReplica(replicaId: string): Event | undefined {
    return this.eventIndex.getLastOfReplica(replicaId);
  }

  lastEvent(subject: EventSubject, reasons: readonly string[]): Event | undefined {
    return this.eventIndex.getLast(subject, reasons);
  }

  servicesByName(after?: string): Iterable<Stored<ServiceRecord>> {
    return this.serviceIndex.servicesByName(after);
  }

  servicesSelecting(workload: WorkloadRecord): Iterable<Stored<ServiceRecord>> {
    return this.serviceIndex.servicesSelecting(workload);
  }

  *workloadsSelectedBy(service: ServiceRecord): Generator<Stored<WorkloadRecord>, void> {
    const name = service.spec?.workload ?? '';
    if (name === '') {
      yield* this.serviceIndex.workloadsWithLabelsOf(service);
      return;
    }
    const workload = this.workloadByName(service.namespace, name);
    if (workload !== undefined) yield workload;
  }

  externalEndpointsOf(serviceKey: string): Iterable<Stored<EndpointRecord>> {
    return this.serviceIndex.endpointsOf(serviceKey);
  }

  /**
   * Applies one change of the store to the records and indexes.
   * @param after - The new record; undefined deletes the record.
   * @returns The record before and after the change.
   */
  apply<Kind extends RecordKind>(
    kind: Kind,
    id: string,
    after: Stored<RecordOf<Kind>> | undefined,
  ): RecordChange {
    if (kind === 'replica')
      return this.applyReplica(id, after as Stored<ReplicaRecord> | undefined);
    const map = this.byKind[kind];
    const before = map.get(id);
    if (after === undefined) map.delete(id);
    else map.set(id, after);
    this.changedBytes += (before?.bytes ?? 0) + (after?.bytes ?? 0);
    const change = createChange(kind, id, before?.value, after?.value);
    this.updateIndexes(change);
    return change;
  }

  private applyReplica(id: string, after: Stored<ReplicaRecord> | undefined): RecordChange {
    const before = this.replicaTable.exchange(id, after);
    this.changedBytes += (before?.bytes ?? 0) + (after?.bytes ?? 0);
    this.indexReplica(before, after);
    return createChange('replica', id, before?.value, after?.value);
  }

  /**
   * Adds a record that the view does not have, as {@link apply} does. Replicas are added without a
   * look-up.
   */
  add<Kind extends RecordKind>(kind: Kind, id: string, after: Stored<RecordOf<Kind>>): void {
    if (kind === 'replica') {
      const replica = after as Stored<ReplicaRecord>;
      this.replicaTable.set(id, replica);
      this.indexReplica(undefined, replica);
    } else this.apply(kind, id, after);
  }

  private updateIndexes({ kind, id, before, after }: RecordChange): void {
    if (kind === 'event') {
      this.updateEventList(before, after);
      this.eventIndex.applyChange(before, after);
    } else if (kind === 'node') this.indexNode(id);
    else if (kind === 'workload') {
      this.indexWorkload(id, before, after);
      this.serviceIndex.applyWorkload(id, before, after);
    } else if (kind === 'service') this.serviceIndex.applyService(id, before, after);
    else if (kind === 'endpoint') this.serviceIndex.applyEndpoint(id, after !== undefined);
    else if (kind === 'route') this.sortedRouteKeys[after === undefined ? 'delete' : 'add'](id);
    else if (kind === 'config') this.sortedConfigKeys[after === undefined ? 'delete' : 'add'](id);
    else if (kind === 'secret') this.sortedSecretKeys[after === undefined ? 'delete' : 'add'](id);
    else if (kind === 'accesstoken') this.indexAccessToken(id, before);
    else if (kind === 'version') this.indexVersion(id, after);
  }

  /**
   * New events usually arrive in order and are appended to the sorted list; the next read removes
   * deleted events, all at once. Any other change, and the deletion of half of the list without a
   * read, discards the list; the next read sorts it again.
   */
  private updateEventList(before: Event | undefined, after: Event | undefined): void {
    const list = this.eventList;
    if (list === undefined) return;
    const last = list.at(-1);
    if (after === undefined && before !== undefined) {
      this.removedEventIds.add(before.id);
      if (2 * this.removedEventIds.size > list.length) this.discardEventList();
    } else if (
      after !== undefined &&
      before === undefined &&
      (last === undefined || last.id < after.id)
    )
      list.push(after);
    else this.discardEventList();
  }

  private discardEventList(): void {
    this.eventList = undefined;
    this.removedEventIds.clear();
  }

  private indexWorkload(
    uid: string,
    before: WorkloadRecord | undefined,
    after: WorkloadRecord | undefined,
  ): void {
    const keyBefore = before && toNameKeyId(before.namespace, before.name);
    const key = after && toNameKeyId(after.namespace, after.name);
    if (keyBefore !== undefined && keyBefore !== key && this.uidsByName.get(keyBefore) === uid) {
      this.uidsByName.delete(keyBefore);
      this.sortedWorkloadNames.delete(keyBefore);
    }
    if (key === undefined) return;
    this.uidsByName.set(key, uid);
    if (key !== keyBefore) this.sortedWorkloadNames.add(key);
  }

  private indexNode(id: string): void {
    const node = this.byKind.node.get(id);
    if (node === undefined) this.sortedNodeIds.delete(id);
    else this.sortedNodeIds.add(id);
    if (node?.value.draining === true) this.drainingById.set(id, node);
    else this.drainingById.delete(id);
  }

  private indexAccessToken(id: string, before: AccessTokenRecord | undefined): void {
    const after = this.byKind.accesstoken.get(id);
    const uidBefore = before?.secretUid;
    if (uidBefore !== undefined && uidBefore !== after?.value.secretUid) {
      const tokens = this.tokensBySecret.get(uidBefore);
      tokens?.delete(id);
      if (tokens?.size === 0) this.tokensBySecret.delete(uidBefore);
    }
    if (after === undefined) return;
    const { secretUid } = after.value;
    const tokens = this.tokensBySecret.get(secretUid);
    if (tokens === undefined) this.tokensBySecret.set(secretUid, new Map([[id, after]]));
    else tokens.set(id, after);
  }

  private indexVersion(id: string, record: VersionRecord | undefined): void {
    const [uid = '', number = ''] = id.split('/');
    const versions = this.versionsByWorkload.get(uid) ?? new Map<number, VersionRecord>();
    if (record === undefined) versions.delete(Number(number));
    else versions.set(record.version, record);
    if (versions.size === 0) this.versionsByWorkload.delete(uid);
    else this.versionsByWorkload.set(uid, versions);
  }

  /**
   * The record of a changed replica is replaced in place, so that the replicas of a node keep the
   * order of their placement.
   */
  private indexReplica(
    before: Stored<ReplicaRecord> | undefined,
    after: Stored<ReplicaRecord> | undefined,
  ): void {
    const nodeBefore = before?.value.nodeId ?? '';
    const node = after?.value.nodeId ?? '';
    if (before !== undefined && nodeBefore !== '')
      replaceInGroup(this.replicasByNode, before, node === nodeBefore ? after : undefined);
    if (after !== undefined && node !== '' && node !== nodeBefore)
      addToGroup(this.replicasByNode, after);
    if (before !== undefined && nodeBefore === '') this.unplacedReplicas.delete(before.value.id);
    if (after !== undefined && waitsForNode(after.value))
      this.unplacedReplicas.set(after.value.id, after);
    if (before?.value.lost === true) this.lostById.delete(before.value.id);
    if (after?.value.lost === true) this.lostById.set(after.value.id, after);
    if (before !== undefined && after === undefined) this.eventIndex.forgetReplica(before.value.id);
  }
}

function createChange(kind: RecordKind, id: string, before: unknown, after: unknown): RecordChange {
  const change =
    before === undefined
      ? after === undefined
        ? { kind, id }
        : { kind, id, after }
      : after === undefined
        ? { kind, id, before }
        : { kind, id, before, after };
  return change as RecordChange;
}

function addToGroup(groups: ReplicaGroups, replica: Stored<ReplicaRecord>): void {
  const { nodeId } = replica.value;
  const group = groups.get(nodeId);
  if (group === undefined) groups.set(nodeId, [replica]);
  else group.push(replica);
}

/** @param after - Undefined removes the replica from the group. */
function replaceInGroup(
  groups: ReplicaGroups,
  before: Stored<ReplicaRecord>,
  after: Stored<ReplicaRecord> | undefined,
): void {
  const { nodeId } = before.value;
  const group = groups.get(nodeId);
  // From the end: the replicas that were placed last change most.
  const index = group?.lastIndexOf(before) ?? -1;
  if (group === undefined || index < 0) return;
  if (after !== undefined) group[index] = after;
  else if (group.length === 1) groups.delete(nodeId);
  else group.splice(index, 1);
}
