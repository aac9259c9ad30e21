import type { Event } from '@cloudless/api';
import { ReplicaStatus_Phase as Phase } from '@cloudless/api';
import type { ReplicaRecord, WorkloadRecord } from '@cloudless/api/store';
import type { ClusterView } from '@cloudless/cluster-state';

/** Where causes are looked up: the events that are kept. Nothing else remembers them, so a cause that is no longer kept is none. */
export type CauseView = Pick<ClusterView, 'revision' | 'lastEvent' | 'lastEventOfReplica' | 'node'>;

/** Events of a user's change of a workload. */
const CHANGES = ['WorkloadCreated', 'WorkloadUpdated', 'WorkloadScaled', 'WorkloadDeletionRequested'];
/** Events of the end of a replica that was not asked to end. */
const ENDS = new Set(['ReplicasLost', 'ReplicaFailed']);

/** The user's newest change of a workload. */
export function changeOf(view: CauseView, workload: Pick<WorkloadRecord, 'namespace' | 'name'>): Event | undefined {
  return view.lastEvent({ kind: 'workload', namespace: workload.namespace, name: workload.name }, CHANGES);
}

/** That the node of a replica is being drained, if it is. */
export function drainOf(view: CauseView, { nodeId }: Pick<ReplicaRecord, 'nodeId'>): Event | undefined {
  const draining = nodeId !== '' && view.node(nodeId)?.value.draining === true;
  return draining ? view.lastEvent({ kind: 'node', nodeId }, ['NodeDraining']) : undefined;
}

/** By slot, the newest replica that failed or was lost. */
export function newestEnded(replicas: readonly ReplicaRecord[]): ReadonlyMap<number, ReplicaRecord> {
  const newest = new Map<number, ReplicaRecord>();
  for (const replica of replicas) {
    if (!replica.lost && replica.phase !== Phase.FAILED) continue;
    const known = newest.get(replica.slot);
    if (known === undefined || known.sequence < replica.sequence) newest.set(replica.slot, replica);
  }
  return newest;
}

/** The end of a replica that failed or was lost. */
export function endOf(view: CauseView, replica: ReplicaRecord | undefined): Event | undefined {
  const event = replica === undefined ? undefined : view.lastEventOfReplica(replica.id);
  return event !== undefined && ENDS.has(event.reason) ? event : undefined;
}

/** Of several things that may have led to something, what happened last. */
export function newestOf(...events: readonly (Event | undefined)[]): Event | undefined {
  return events.reduce<Event | undefined>(
    (newest, event) => (event !== undefined && (newest === undefined || event.id > newest.id) ? event : newest),
    undefined,
  );
}
