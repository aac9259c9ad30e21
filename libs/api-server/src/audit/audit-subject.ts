import type { ReplicaRecord } from '@cloudless/api/store';
import type { ClusterView } from '@cloudless/cluster-state';
import type { AuditSubject } from './audit-event.js';

/** Returns the audit subject of a call that acts on one replica. */
export function toAuditSubject(
  view: ClusterView,
  { id, uid, nodeId }: ReplicaRecord,
): AuditSubject {
  const workload = view.workload(uid)?.value;
  return {
    ...(workload === undefined ? {} : { namespace: workload.namespace, workload: workload.name }),
    nodeId,
    replicaId: id,
  };
}
