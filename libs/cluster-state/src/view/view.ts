import type { Event } from '@cloudless/api';
import type {
  CertificateAuthorityRecord,
  ControlRecord,
  CoordinatorRecord,
  CredentialRecord,
  EvidenceRecord,
  JoinTokenRecord,
  PlanRecord,
  NodeBanRecord,
  NodeRecord,
  RemovedEventsRecord,
  ReplicaRecord,
  RequestRecord,
  UserRecord,
  VersionRecord,
  WorkloadRecord,
} from '@cloudless/api/store';
import type { Revision } from '@cloudless/state-store';
import {
  CERTIFICATE_AUTHORITY_KEY,
  REMOVED_EVENTS_KEY,
  toNameKeyId,
  type RecordKind,
  type RecordOf,
} from '../records/records.js';
import { waitsForNode } from '../records/replicas.js';
import { EventIndex, removeEvent, type EventSubject } from './event-index.js';
import type { RecordChange, Stored } from './record-change.js';
import { SortedKeys } from './sorted-keys.js';

export type { RecordChange, Stored };

/**
 * The cluster's state at one revision. Records are shared and read-only: copy a record to change
 * it.
 */
export interface ClusterView {
  readonly revision: Revision;
  workload(uid: string): Stored<WorkloadRecord> | undefined;
  workloadByName(namespace: string, name: string): Stored<WorkloadRecord> | undefined;
  workloads(): Iterable<Stored<WorkloadRecord>>;
  readonly workloadCount: number;
  /**
   * Workloads by namespace and name, ascending. Reads only as many as the caller takes; the view
   * must not change during the iteration.
   * @param after - Only workloads after this key, `<namespace>/<name>`. Default: all workloads.
   */
  workloadsByName(after?: string): Iterable<Stored<WorkloadRecord>>;
  control(uid: string): Stored<ControlRecord> | undefined;
  /** The readiness guard: changes whenever a replica of the workload stops being ready. */
  readinessGuard(uid: string): Stored<EvidenceRecord> | undefined;
  plan(id: string): Stored<PlanRecord> | undefined;
  plans(): Iterable<readonly [string, Stored<PlanRecord>]>;
  version(uid: string, version: number): VersionRecord | undefined;
  /** The kept versions of a workload, ascending. */
  versions(uid: string): readonly VersionRecord[];
  replica(id: string): Stored<ReplicaRecord> | undefined;
  replicas(): Iterable<Stored<ReplicaRecord>>;
  replicasOf(uid: string): Iterable<Stored<ReplicaRecord>>;
  replicasOn(nodeId: string): Iterable<Stored<ReplicaRecord>>;
  /** Replicas that wait for a node: in phase PENDING, without a node, and not ordered to stop. */
  unplaced(): Iterable<Stored<ReplicaRecord>>;
  node(id: string): Stored<NodeRecord> | undefined;
  nodes(): Iterable<Stored<NodeRecord>>;
  readonly nodeCount: number;
  /**
   * Nodes by id, ascending, as {@link workloadsByName} lists workloads.
   * @param after - Only nodes after this id. Default: all nodes.
   */
  nodesById(after?: string): Iterable<Stored<NodeRecord>>;
  /** Nodes that are draining or drained, until they are uncordoned. */
  drainingNodes(): Iterable<Stored<NodeRecord>>;
  /** All kept events, oldest first. */
  events(): readonly Event[];
  /** The newest kept event about a replica that still has a record. */
  lastEventOfReplica(replicaId: string): Event | undefined;
  /** The newest kept event with one of these reasons about a workload or node as a whole. */
  lastEvent(subject: EventSubject, reasons: readonly string[]): Event | undefined;
  event(id: string): Stored<Event> | undefined;
  request(id: string): Stored<RequestRecord> | undefined;
  requests(): Iterable<readonly [string, Stored<RequestRecord>]>;
  /** The newest removed event of each category; undefined when no event was removed. */
  removedEvents(): Stored<RemovedEventsRecord> | undefined;
  /** The certificate authority; undefined in a cluster without identities. */
  certificateAuthority(): Stored<CertificateAuthorityRecord> | undefined;
  joinToken(id: string): Stored<JoinTokenRecord> | undefined;
  joinTokens(): Iterable<Stored<JoinTokenRecord>>;
  user(name: string): Stored<UserRecord> | undefined;
  users(): Iterable<Stored<UserRecord>>;
  credential(id: string): Stored<CredentialRecord> | undefined;
  credentials(): Iterable<Stored<CredentialRecord>>;
  /** The ban of a node; undefined when the node is not banned. */
  nodeBan(nodeId: string): Stored<NodeBanRecord> | undefined;
  nodeBans(): Iterable<Stored<NodeBanRecord>>;
  /** The coordinators that run, or ran until a few seconds ago. */
  coordinators(): Iterable<Stored<CoordinatorRecord>>;
}

type ReplicaGroups = Map<string, Map<string, Stored<ReplicaRecord>>>;

/** The indexed view that `ClusterState` maintains. */
export class IndexedView implements ClusterView {
  revision: Revision = 0n;
  private readonly byKind: { readonly [Kind in RecordKind]: Map<string, Stored<RecordOf<Kind>>> } =
    {
      meta: new Map(),
      leader: new Map(),
      leaderlease: new Map(),
      coordinator: new Map(),
      workload: new Map(),
      name: new Map(),
      version: new Map(),
      control: new Map(),
      replica: new Map(),
      node: new Map(),
      event: new Map(),
      request: new Map(),
      evidence: new Map(),
      plan: new Map(),
      removed: new Map(),
      ca: new Map(),
      jointoken: new Map(),
      user: new Map(),
      credential: new Map(),
      ban: new Map(),
    };
  private readonly replicasById = new Map<string, Stored<ReplicaRecord>>();
  private readonly replicasByWorkload: ReplicaGroups = new Map();
  private readonly replicasByNode: ReplicaGroups = new Map();
  private readonly unplacedReplicas = new Map<string, Stored<ReplicaRecord>>();
  private readonly drainingById = new Map<string, Stored<NodeRecord>>();
  private readonly sortedNodeIds = new SortedKeys();
  /** Keys of all workloads, and the uid that each key belongs to. */
  private readonly sortedWorkloadNames = new SortedKeys();
  private readonly uidsByName = new Map<string, string>();
  private readonly versionsByWorkload = new Map<string, Map<number, VersionRecord>>();
  private eventList: Event[] | undefined;
  private readonly eventIndex = new EventIndex();

  /** Returns any record by its kind and the id in its key. */
  get<Kind extends RecordKind>(kind: Kind, id: string): Stored<RecordOf<Kind>> | undefined {
    return this.byKind[kind].get(id);
  }

  listIds(kind: RecordKind): Iterable<string> {
    return this.byKind[kind].keys();
  }

  /** All records with their kinds and the ids in their keys. */
  *entries(): Iterable<readonly [RecordKind, string, Stored<RecordOf<RecordKind>>]> {
    for (const [kind, records] of Object.entries(this.byKind))
      for (const [id, record] of records) yield [kind as RecordKind, id, record];
  }

  workload(uid: string): Stored<WorkloadRecord> | undefined {
    return this.byKind.workload.get(uid);
  }

  workloadByName(namespace: string, name: string): Stored<WorkloadRecord> | undefined {
    const index = this.byKind.name.get(toNameKeyId(namespace, name));
    return index === undefined ? undefined : this.byKind.workload.get(index.value.uid);
  }

  workloads(): Iterable<Stored<WorkloadRecord>> {
    return this.byKind.workload.values();
  }

  get workloadCount(): number {
    return this.byKind.workload.size;
  }

  *workloadsByName(after?: string): Generator<Stored<WorkloadRecord>, void> {
    for (const key of this.sortedWorkloadNames.after(after)) {
      const workload = this.byKind.workload.get(this.uidsByName.get(key) ?? '');
      if (workload !== undefined) yield workload;
    }
  }

  control(uid: string): Stored<ControlRecord> | undefined {
    return this.byKind.control.get(uid);
  }

  readinessGuard(uid: string): Stored<EvidenceRecord> | undefined {
    return this.byKind.evidence.get(uid);
  }

  plan(id: string): Stored<PlanRecord> | undefined {
    return this.byKind.plan.get(id);
  }

  plans(): Iterable<readonly [string, Stored<PlanRecord>]> {
    return this.byKind.plan;
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
    return this.replicasById.get(id);
  }

  replicas(): Iterable<Stored<ReplicaRecord>> {
    return this.replicasById.values();
  }

  replicasOf(uid: string): Iterable<Stored<ReplicaRecord>> {
    return this.replicasByWorkload.get(uid)?.values() ?? [];
  }

  replicasOn(nodeId: string): Iterable<Stored<ReplicaRecord>> {
    return this.replicasByNode.get(nodeId)?.values() ?? [];
  }

  unplaced(): Iterable<Stored<ReplicaRecord>> {
    return this.unplacedReplicas.values();
  }

  node(id: string): Stored<NodeRecord> | undefined {
    return this.byKind.node.get(id);
  }

  nodes(): Iterable<Stored<NodeRecord>> {
    return this.byKind.node.values();
  }

  get nodeCount(): number {
    return this.byKind.node.size;
  }

  *nodesById(after?: string): Generator<Stored<NodeRecord>, void> {
    for (const id of this.sortedNodeIds.after(after)) {
      const node = this.byKind.node.get(id);
      if (node !== undefined) yield node;
    }
  }

  drainingNodes(): Iterable<Stored<NodeRecord>> {
    return this.drainingById.values();
  }

  events(): readonly Event[] {
    this.eventList ??= [...this.byKind.event.values()]
      .map(({ value }) => value)
      .sort((a, b) => (a.id < b.id ? -1 : 1));
    return this.eventList;
  }

  event(id: string): Stored<Event> | undefined {
    return this.byKind.event.get(id);
  }

  lastEventOfReplica(replicaId: string): Event | undefined {
    return this.eventIndex.getLastOfReplica(replicaId);
  }

  lastEvent(subject: EventSubject, reasons: readonly string[]): Event | undefined {
    return this.eventIndex.getLast(subject, reasons);
  }

  request(id: string): Stored<RequestRecord> | undefined {
    return this.byKind.request.get(id);
  }

  requests(): Iterable<readonly [string, Stored<RequestRecord>]> {
    return this.byKind.request;
  }

  certificateAuthority(): Stored<CertificateAuthorityRecord> | undefined {
    return this.byKind.ca.get(CERTIFICATE_AUTHORITY_KEY);
  }

  joinToken(id: string): Stored<JoinTokenRecord> | undefined {
    return this.byKind.jointoken.get(id);
  }

  joinTokens(): Iterable<Stored<JoinTokenRecord>> {
    return this.byKind.jointoken.values();
  }

  user(name: string): Stored<UserRecord> | undefined {
    return this.byKind.user.get(name);
  }

  users(): Iterable<Stored<UserRecord>> {
    return this.byKind.user.values();
  }

  credential(id: string): Stored<CredentialRecord> | undefined {
    return this.byKind.credential.get(id);
  }

  credentials(): Iterable<Stored<CredentialRecord>> {
    return this.byKind.credential.values();
  }

  nodeBan(nodeId: string): Stored<NodeBanRecord> | undefined {
    return this.byKind.ban.get(nodeId);
  }

  nodeBans(): Iterable<Stored<NodeBanRecord>> {
    return this.byKind.ban.values();
  }

  coordinators(): Iterable<Stored<CoordinatorRecord>> {
    return this.byKind.coordinator.values();
  }

  removedEvents(): Stored<RemovedEventsRecord> | undefined {
    return this.byKind.removed.get(REMOVED_EVENTS_KEY);
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
    const map = this.byKind[kind];
    const before = map.get(id);
    if (after === undefined) map.delete(id);
    else map.set(id, after);
    const change: { kind: RecordKind; id: string; before?: unknown; after?: unknown } = {
      kind,
      id,
    };
    if (before !== undefined) change.before = before.value;
    if (after !== undefined) change.after = after.value;
    this.updateIndexes(change as RecordChange);
    return change as RecordChange;
  }

  private updateIndexes({ kind, id, before, after }: RecordChange): void {
    if (kind === 'event') {
      this.updateEventList(before, after);
      this.eventIndex.applyChange(before, after);
    } else if (kind === 'node') this.indexNode(id);
    else if (kind === 'workload') this.indexWorkload(id, before, after);
    else if (kind === 'version') this.indexVersion(id, after);
    else if (kind === 'replica') this.indexReplica(before, this.byKind.replica.get(id));
  }

  /**
   * New events usually arrive in order and are appended to the sorted list; deleted events are
   * removed. Any other change discards the list; the next read sorts it again.
   */
  private updateEventList(before: Event | undefined, after: Event | undefined): void {
    const list = this.eventList;
    if (list === undefined) return;
    const last = list.at(-1);
    if (after === undefined && before !== undefined) removeEvent(list, before.id);
    else if (
      after !== undefined &&
      before === undefined &&
      (last === undefined || last.id < after.id)
    )
      list.push(after);
    else this.eventList = undefined;
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

  private indexVersion(id: string, record: VersionRecord | undefined): void {
    const [uid = '', number = ''] = id.split('/');
    const versions = this.versionsByWorkload.get(uid) ?? new Map<number, VersionRecord>();
    if (record === undefined) versions.delete(Number(number));
    else versions.set(record.version, record);
    if (versions.size === 0) this.versionsByWorkload.delete(uid);
    else this.versionsByWorkload.set(uid, versions);
  }

  /**
   * Records of a changed replica are replaced in place, so that an iteration over replicas keeps the
   * order of their creation.
   */
  private indexReplica(
    before: ReplicaRecord | undefined,
    after: Stored<ReplicaRecord> | undefined,
  ): void {
    const value = after?.value;
    if (before !== undefined) {
      if (value?.id !== before.id) this.replicasById.delete(before.id);
      if (before.nodeId === '') this.unplacedReplicas.delete(before.id);
      if (value?.uid !== before.uid || value.id !== before.id)
        removeFromGroup(this.replicasByWorkload, before.uid, before.id);
      if (before.nodeId !== '' && (value?.nodeId !== before.nodeId || value.id !== before.id))
        removeFromGroup(this.replicasByNode, before.nodeId, before.id);
    }
    if (after === undefined) {
      if (before !== undefined) this.eventIndex.forgetReplica(before.id);
      return;
    }
    this.replicasById.set(after.value.id, after);
    addToGroup(this.replicasByWorkload, after.value.uid, after);
    if (after.value.nodeId !== '') addToGroup(this.replicasByNode, after.value.nodeId, after);
    else if (waitsForNode(after.value)) this.unplacedReplicas.set(after.value.id, after);
  }
}

function addToGroup(group: ReplicaGroups, key: string, replica: Stored<ReplicaRecord>): void {
  const members = group.get(key);
  if (members === undefined) group.set(key, new Map([[replica.value.id, replica]]));
  else members.set(replica.value.id, replica);
}

function removeFromGroup(group: ReplicaGroups, key: string, replicaId: string): void {
  const members = group.get(key);
  members?.delete(replicaId);
  if (members?.size === 0) group.delete(key);
}
