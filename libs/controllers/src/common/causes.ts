import type { Event } from '@cloudless/api';
import { ReplicaStatus_Phase as Phase } from '@cloudless/api';
import type { ReplicaRecord, WorkloadRecord } from '@cloudless/api/store';
import type { ClusterView } from '@cloudless/cluster-state';

/**
 * The part of the view in which the causes of events are looked up. A cause whose event is no
 * longer kept is not found.
 */
export type EventView = Pick<ClusterView, 'revision' | 'lastEvent' | 'lastEventOfReplica' | 'node'>;

/** Reasons of events about a change of a workload: by a user, or by an automatic rollback. */
const CHANGE_REASONS = [
  'WorkloadCreated',
  'WorkloadUpdated',
  'WorkloadScaled',
  'WorkloadRolledBack',
  'WorkloadDeletionRequested',
];
/** Reasons of events about a user's drain of a node. */
const DRAIN_REASONS = ['NodeDraining', 'NodeDrainChanged'];
/** Reasons of events that may report new taints. */
const NODE_CHANGE_REASONS = ['NodeUpdated', 'NodeChanged', 'NodeJoined'];
/** Reasons of events about replicas that ended without an order. */
const END_REASONS = new Set(['ReplicasLost', 'ReplicaFailed']);

/** The event of the newest change of a workload. */
export function findChangeEvent(
  view: EventView,
  workload: Pick<WorkloadRecord, 'namespace' | 'name'>,
): Event | undefined {
  return view.lastEvent(
    { kind: 'workload', namespace: workload.namespace, name: workload.name },
    CHANGE_REASONS,
  );
}

/** The event that evicts a replica from its node: the drain, or the change that added a taint. */
export function findEvictionEvent(
  view: EventView,
  { nodeId }: Pick<ReplicaRecord, 'nodeId'>,
): Event | undefined {
  if (nodeId === '') return undefined;
  return view.lastEvent(
    { kind: 'node', nodeId },
    view.node(nodeId)?.value.draining === true ? DRAIN_REASONS : NODE_CHANGE_REASONS,
  );
}

/** The newest failed or lost replica of each slot. */
export function findNewestEnded(
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

/** The event of the end of a failed or lost replica. */
export function findEndEvent(
  view: EventView,
  replica: ReplicaRecord | undefined,
): Event | undefined {
  const event = replica === undefined ? undefined : view.lastEventOfReplica(replica.id);
  return event !== undefined && END_REASONS.has(event.reason) ? event : undefined;
}

/** The newest of several events. */
export function selectNewest(...events: readonly (Event | undefined)[]): Event | undefined {
  return events.reduce<Event | undefined>(
    (newest, event) =>
      event !== undefined && (newest === undefined || event.id > newest.id) ? event : newest,
    undefined,
  );
}
