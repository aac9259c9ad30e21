import type { MessageInitShape } from '@bufbuild/protobuf';
import type { MessageWriter, WorkloadReplicasSchema } from '@cloudless/api';
import type { ReplicaRecord } from '@cloudless/api/store';
import type { WorkloadPresenterPort } from '../ports.js';

/** Replicas of one workload in a response. */
export interface NamedReplicas {
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
  readonly replicas: readonly ReplicaRecord[];
  readonly removedIds: readonly string[];
}

/** Number of the field `workloads` in WatchReplicasResponse and ListReplicasResponse. */
const WORKLOADS_FIELD = 1;

/** Builds the field `workloads` of a response. */
export function presentWorkloadReplicas(
  presenter: Pick<WorkloadPresenterPort, 'presentReplica'>,
  workloads: readonly NamedReplicas[],
): MessageInitShape<typeof WorkloadReplicasSchema>[] {
  return workloads.map(({ namespace, name, uid, replicas, removedIds }) => ({
    ...{ namespace, name, uid },
    replicas: replicas.map((replica) => presenter.presentReplica(replica)),
    removedReplicaIds: [...removedIds],
  }));
}

/** Writes the field `workloads` of a response, with the encoded replicas that all readers share. */
export function writeWorkloadReplicas(
  writer: MessageWriter,
  presenter: Pick<WorkloadPresenterPort, 'encodeReplica'>,
  workloads: readonly NamedReplicas[],
): void {
  for (const { namespace, name, uid, replicas, removedIds } of workloads) {
    const start = writer.begin(WORKLOADS_FIELD);
    writer.string(1, namespace);
    writer.string(2, name);
    writer.string(3, uid);
    for (const replica of replicas) writer.delimited(4, presenter.encodeReplica(replica));
    for (const id of removedIds) writer.element(5, id);
    writer.end(start);
  }
}
