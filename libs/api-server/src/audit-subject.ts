import type { ReplicaRecord } from '@cloudless/api/store';
import type { ClusterView } from '@cloudless/cluster-state';
import type { AuditObject } from './audit.js';

/** The audit subject of a call that was resolved to one replica. */
export function subjectOf(view: ClusterView, { id, uid, nodeId }: ReplicaRecord): AuditObject {
  const workload = view.workload(uid)?.value;
  return {
    ...(workload === undefined ? {} : { namespace: workload.namespace, workload: workload.name }),
    nodeId,
    replicaId: id,
  };
}
