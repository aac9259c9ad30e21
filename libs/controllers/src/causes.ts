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

/** The end of the newest replica of a slot that failed or was lost. */
export function endInSlot(view: CauseView, replicas: readonly ReplicaRecord[], slot: number): Event | undefined {
  const ended = replicas.filter((replica) => replica.slot === slot && (replica.lost || replica.phase === Phase.FAILED));
  const [newest] = ended.sort((a, b) => Number(b.sequence - a.sequence));
  const event = newest === undefined ? undefined : view.lastEventOfReplica(newest.id);
  return event !== undefined && ENDS.has(event.reason) ? event : undefined;
}

/** Of several things that may have led to something, what happened last. */
export function newestOf(...events: readonly (Event | undefined)[]): Event | undefined {
  return events.reduce<Event | undefined>(
    (newest, event) => (event !== undefined && (newest === undefined || event.id > newest.id) ? event : newest),
    undefined,
  );
}
