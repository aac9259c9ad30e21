import type { Event } from '@cloudless/api';
import { ReplicaStatus_Phase as Phase } from '@cloudless/api';
import type { ReplicaRecord, WorkloadRecord } from '@cloudless/api/store';
import type { ClusterView } from '@cloudless/cluster-state';
import { isPreempted } from '../preemption/nominations.js';

/**
 * The part of the view in which the functions of this file look up the causes of events. They
 * return undefined for a cause whose event is no longer kept.
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
/**
 * Reasons of events about replicas that ended or have to end without a decision of their workload.
 */
const END_REASONS = new Set(['ReplicasLost', 'ReplicaFailed', 'ReplicaPreempted']);

/** Returns the event of the newest change of a workload's spec, or of its deletion request. */
export function findChangeEvent(
  view: EventView,
  workload: Pick<WorkloadRecord, 'namespace' | 'name'>,
): Event | undefined {
  return view.lastEvent(
    { kind: 'workload', namespace: workload.namespace, name: workload.name },
    CHANGE_REASONS,
  );
}

/**
 * Returns the event that evicts a replica from its node: of the drain, or of the newest change of
 * the node, which may have added a taint. Undefined for a replica without a node.
 */
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

/** Returns the newest failed, lost or preempted replica of each slot, by slot number. */
export function findNewestEnded(
  replicas: readonly ReplicaRecord[],
): ReadonlyMap<number, ReplicaRecord> {
  const newest = new Map<number, ReplicaRecord>();
  for (const replica of replicas) {
    if (!replica.lost && replica.phase !== Phase.FAILED && !isPreempted(replica)) continue;
    const earlier = newest.get(replica.slot);
    if (earlier === undefined || earlier.sequence < replica.sequence)
      newest.set(replica.slot, replica);
  }
  return newest;
}

/** Returns the event that reports the failure, the loss or the preemption of a replica. */
export function findEndEvent(
  view: EventView,
  replica: ReplicaRecord | undefined,
): Event | undefined {
  const event = replica === undefined ? undefined : view.lastEventOfReplica(replica.id);
  return event !== undefined && END_REASONS.has(event.reason) ? event : undefined;
}

/** Returns the newest of several events; undefined when none is defined. */
export function selectNewest(...events: readonly (Event | undefined)[]): Event | undefined {
  return events.reduce<Event | undefined>(
    (newest, event) =>
      event !== undefined && (newest === undefined || event.id > newest.id) ? event : newest,
    undefined,
  );
}
