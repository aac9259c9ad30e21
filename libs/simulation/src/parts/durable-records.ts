import type {
  ControlRecord,
  LeaderRecord,
  NodeRecord,
  ReplicaRecord,
  RequestRecord,
  VersionRecord,
  WorkloadRecord,
} from '@cloudless/api/store';
import {
  decodeRecord,
  parseKey,
  type ClusterView,
  type RecordChange,
  type Stored,
} from '@cloudless/cluster-state';
import type { ChangeBatch } from '@cloudless/state-store';

const LEADER_RECORD_KEY = '/leader/leader';

/** The part of a cluster view that checkers read, and that {@link DurableRecords} implements. */
export type CheckedView = Pick<
  ClusterView,
  | 'workload'
  | 'workloads'
  | 'control'
  | 'version'
  | 'node'
  | 'nodes'
  | 'replica'
  | 'replicas'
  | 'replicasOf'
  | 'replicasOn'
>;

/**
 * The records on the disk of the coordinator. Each record is decoded once for each change. A
 * simulated process may have other records in memory; this class has only what was committed.
 */
export class DurableRecords implements CheckedView {
  /** Revision of the newest applied transaction; 0 before the first. */
  revision = 0n;
  private readonly workloadsByUid = new Map<string, Stored<WorkloadRecord>>();
  private readonly controls = new Map<string, Stored<ControlRecord>>();
  private readonly versionsByUid = new Map<string, Map<number, VersionRecord>>();
  private readonly nodesById = new Map<string, Stored<NodeRecord>>();
  private readonly requests = new Map<string, RequestRecord>();
  private readonly replicasById = new Map<string, Stored<ReplicaRecord>>();
  private readonly replicaIdsByWorkload = new Map<string, Set<string>>();
  private readonly replicaIdsByNode = new Map<string, Set<string>>();
  /** The newest decoded record of each key. */
  private readonly recordByKey = new Map<string, RecordChange['after']>();

  /** Epoch of the newest leadership; 0 before the first. */
  get leaderEpoch(): bigint {
    return (this.recordByKey.get(LEADER_RECORD_KEY) as LeaderRecord | undefined)?.epoch ?? 0n;
  }

  /**
   * Applies a transaction.
   * @returns The changes of its records. Events are left out.
   */
  apply({ revision, changes }: ChangeBatch): readonly RecordChange[] {
    this.revision = revision;
    return changes.flatMap((change) => {
      const key = change.kind === 'put' ? change.entry.key : change.key;
      const parsed = parseKey(key);
      if (parsed === undefined || parsed.kind === 'event') return [];
      const { kind, id } = parsed;
      const before = this.recordByKey.get(key);
      const record =
        change.kind === 'delete'
          ? undefined
          : (decodeRecord(kind, id, change.entry.value) as RecordChange['after']);
      if (record === undefined) this.recordByKey.delete(key);
      else this.recordByKey.set(key, record);
      this.put(kind, id, before, record, revision);
      return [{ kind, id, before, after: record } as RecordChange];
    });
  }

  workload(uid: string): Stored<WorkloadRecord> | undefined {
    return this.workloadsByUid.get(uid);
  }

  workloads(): Iterable<Stored<WorkloadRecord>> {
    return this.workloadsByUid.values();
  }

  control(uid: string): Stored<ControlRecord> | undefined {
    return this.controls.get(uid);
  }

  version(uid: string, version: number): VersionRecord | undefined {
    return this.versionsByUid.get(uid)?.get(version);
  }

  node(nodeId: string): Stored<NodeRecord> | undefined {
    return this.nodesById.get(nodeId);
  }

  nodes(): Iterable<Stored<NodeRecord>> {
    return this.nodesById.values();
  }

  replica(replicaId: string): Stored<ReplicaRecord> | undefined {
    return this.replicasById.get(replicaId);
  }

  replicas(): Iterable<Stored<ReplicaRecord>> {
    return this.replicasById.values();
  }

  replicasOf(uid: string): Iterable<Stored<ReplicaRecord>> {
    return this.getReplicas(this.replicaIdsByWorkload.get(uid));
  }

  replicasOn(nodeId: string): Iterable<Stored<ReplicaRecord>> {
    return this.getReplicas(this.replicaIdsByNode.get(nodeId));
  }

  request(requestId: string): RequestRecord | undefined {
    return this.requests.get(requestId);
  }

  private put(
    kind: RecordChange['kind'],
    id: string,
    before: RecordChange['before'],
    record: RecordChange['after'],
    revision: bigint,
  ): void {
    if (kind === 'workload')
      set(this.workloadsByUid, id, record as WorkloadRecord | undefined, revision);
    else if (kind === 'control')
      set(this.controls, id, record as ControlRecord | undefined, revision);
    else if (kind === 'node') set(this.nodesById, id, record as NodeRecord | undefined, revision);
    else if (kind === 'request') {
      if (record === undefined) this.requests.delete(id);
      else this.requests.set(id, record as RequestRecord);
    } else if (kind === 'version') this.putVersion(id, record as VersionRecord | undefined);
    else if (kind === 'replica') {
      this.putReplica(
        before as ReplicaRecord | undefined,
        record as ReplicaRecord | undefined,
        revision,
      );
    }
  }

  private putVersion(id: string, record: VersionRecord | undefined): void {
    const [uid = '', number = ''] = id.split('/');
    const versions = this.versionsByUid.get(uid) ?? new Map<number, VersionRecord>();
    this.versionsByUid.set(uid, versions);
    if (record === undefined) versions.delete(Number(number));
    else versions.set(Number(number), record);
  }

  private putReplica(
    before: ReplicaRecord | undefined,
    record: ReplicaRecord | undefined,
    revision: bigint,
  ): void {
    if (before !== undefined) {
      this.replicaIdsByWorkload.get(before.uid)?.delete(before.id);
      this.replicaIdsByNode.get(before.nodeId)?.delete(before.id);
      if (record === undefined) this.replicasById.delete(before.id);
    }
    if (record === undefined) return;
    this.replicasById.set(record.id, { value: record, revision });
    add(this.replicaIdsByWorkload, record.uid, record.id);
    if (record.nodeId !== '') add(this.replicaIdsByNode, record.nodeId, record.id);
  }

  private *getReplicas(ids: ReadonlySet<string> | undefined): Iterable<Stored<ReplicaRecord>> {
    for (const id of ids ?? []) {
      const stored = this.replicasById.get(id);
      if (stored !== undefined) yield stored;
    }
  }
}

function set<Value>(
  map: Map<string, Stored<Value>>,
  id: string,
  value: Value | undefined,
  revision: bigint,
): void {
  if (value === undefined) map.delete(id);
  else map.set(id, { value, revision });
}

function add(index: Map<string, Set<string>>, key: string, id: string): void {
  const ids = index.get(key) ?? new Set<string>();
  index.set(key, ids);
  ids.add(id);
}
