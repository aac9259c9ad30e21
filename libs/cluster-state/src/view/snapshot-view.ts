import { create } from '@bufbuild/protobuf';
import {
  WorkloadRecordSchema,
  type ControlRecord,
  type NodeRecord,
  type ReplicaRecord,
  type VersionRecord,
  type WorkloadRecord,
} from '@cloudless/api/store';
import { toNameKeyId, toReplicaKeyId, toVersionKeyId } from '../records/records.js';
import { IndexedView, type ClusterView } from './view.js';

/** The records of a snapshot, in any order. */
export interface SnapshotRecords {
  readonly revision: bigint;
  readonly nodes: Iterable<NodeRecord>;
  readonly workloads: Iterable<WorkloadRecord>;
  /** The versions with the uids of their workloads. */
  readonly versions: Iterable<readonly [uid: string, record: VersionRecord]>;
  readonly controls: Iterable<ControlRecord>;
  readonly replicas: Iterable<ReplicaRecord>;
}

/** Creates a view of records that no store holds any more. The view never changes. */
export function createSnapshotView(records: SnapshotRecords): ClusterView {
  const { revision } = records;
  const view = new IndexedView();
  for (const value of records.nodes) view.apply('node', value.id, { value, revision });
  for (const value of records.workloads) {
    const { uid, namespace, name } = value;
    view.apply('workload', uid, { value, revision });
    const index = create(WorkloadRecordSchema, { uid });
    view.apply('name', toNameKeyId(namespace, name), { value: index, revision });
  }
  for (const [uid, value] of records.versions)
    view.apply('version', toVersionKeyId(uid, value.version), { value, revision });
  for (const value of records.controls) view.apply('control', value.uid, { value, revision });
  for (const value of records.replicas)
    view.apply('replica', toReplicaKeyId(value.uid, value.sequence), { value, revision });
  view.revision = revision;
  return view;
}
