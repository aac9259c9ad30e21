import type { Event } from '@cloudless/api';
import { ReplicaStatus_Phase as Phase } from '@cloudless/api';
import type { ReplicaRecord, WorkloadRecord } from '@cloudless/api/store';
import type { ClusterView } from '@cloudless/cluster-state';

/**
 * Where causes are looked up: the events that are kept. Nothing else remembers them, so a cause
 * that is no longer kept is none.
 */
export type CauseView = Pick<ClusterView, 'revision' | 'lastEvent' | 'lastEventOfReplica' | 'node'>;

/** Events of a change of a workload: by a user, or by the rollback that one has asked for. */
const CHANGES = [
  'WorkloadCreated',
  'WorkloadUpdated',
  'WorkloadScaled',
  'WorkloadRolledBack',
  'WorkloadDeletionRequested',
];
/** Events of a user's drain of a node. */
const DRAINS = ['NodeDraining', 'NodeDrainChanged'];
/** Events that tell of taints. */
const NODE_CHANGES = ['NodeUpdated', 'NodeChanged', 'NodeJoined'];
/** Events of the end of a replica that was not asked to end. */
const ENDS = new Set(['ReplicasLost', 'ReplicaFailed']);

/** The user's newest change of a workload. */
export function changeOf(
  view: CauseView,
  workload: Pick<WorkloadRecord, 'namespace' | 'name'>,
): Event | undefined {
  return view.lastEvent(
    { kind: 'workload', namespace: workload.namespace, name: workload.name },
    CHANGES,
  );
}

/** What drives a replica from its node: the drain, or the change that brought a taint. */
export function evictionOf(
  view: CauseView,
  { nodeId }: Pick<ReplicaRecord, 'nodeId'>,
): Event | undefined {
  if (nodeId === '') return undefined;
  return view.lastEvent(
    { kind: 'node', nodeId },
    view.node(nodeId)?.value.draining === true ? DRAINS : NODE_CHANGES,
  );
}

/** By slot, the newest replica that failed or was lost. */
export function newestEnded(
  replicas: readonly ReplicaRecord[],
): ReadonlyMap<number, ReplicaRecord> {
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
    (newest, event) =>
      event !== undefined && (newest === undefined || event.id > newest.id) ? event : newest,
    undefined,
  );
}
