import type { ReplicaRecord } from '@cloudless/api/store';
import { holdsResources } from '@cloudless/cluster-state';
import type { CheckedView } from '../parts/durable-records.js';
import { findPreempted, findReplicaChanges } from './commit-changes.js';
import type { Checker } from './commit-checkers.js';

/** Replicas with a higher priority may preempt others. */
const HIGHEST_PRIORITY_WITHOUT_PREEMPTION = 100;
const DEFAULT_PRIORITY = 50;

/**
 * Preemption: a replica is preempted only in the commit that nominates a waiting replica on its
 * node, whose priority is above 100 and above that of the preempted replica.
 */
export const preemptionsFollowPriorities: Checker = ({ view, changes }) => {
  const nominated = findReplicaChanges(changes).flatMap(({ after }) =>
    after !== undefined && isNominated(after) ? [after] : [],
  );
  return findPreempted(changes).flatMap((victim) => {
    const preemptors = nominated.filter(({ nominatedNodeId }) => nominatedNodeId === victim.nodeId);
    if (preemptors.length === 0)
      return [`${victim.id} was preempted, but no replica is nominated on ${victim.nodeId}`];
    const highest = Math.max(...preemptors.map((replica) => priorityOf(view, replica)));
    const priority = priorityOf(view, victim);
    return highest > HIGHEST_PRIORITY_WITHOUT_PREEMPTION && highest > priority
      ? []
      : [`${victim.id} of priority ${priority} was preempted by priority ${highest}`];
  });
};

/**
 * Preemption: on no node do the replicas that stay and those that are nominated need more than the
 * node has, so that the resources of preempted replicas are given away once.
 */
export const nominationsFit: Checker = ({ view, changes }) => {
  const nodeIds = findReplicaChanges(changes).flatMap(({ before, after }) => {
    if (after === undefined || before?.nodeId === after.nodeId) {
      return after !== undefined && isNominated(after) ? [after.nominatedNodeId] : [];
    }
    return after.nodeId === '' ? [] : [after.nodeId];
  });
  if (nodeIds.length === 0) return [];
  const nominated = [...view.replicas()].map(({ value }) => value).filter(isNominated);
  return [...new Set(nodeIds)].flatMap((nodeId) => {
    const staying = [...view.replicasOn(nodeId)]
      .map(({ value }) => value)
      .filter((replica) => holdsResources(replica) && replica.desiredRunning);
    const waiting = nominated.filter((replica) => replica.nominatedNodeId === nodeId);
    if (waiting.length === 0) return [];
    const cpu = [...staying, ...waiting].reduce((sum, each) => sum + cpuOf(view, each), 0);
    const capacity = view.node(nodeId)?.value.hello?.capacity?.cpuMillis ?? 0;
    return cpu > capacity
      ? [`${nodeId} has promised ${cpu} m of ${capacity} m CPU to replicas and nominations`]
      : [];
  });
};

/** Returns true for a waiting replica that holds its resources on a node. */
export function isNominated({ nominatedNodeId, nodeId, desiredRunning }: ReplicaRecord): boolean {
  return nominatedNodeId !== '' && nodeId === '' && desiredRunning;
}

function priorityOf(view: CheckedView, { uid, version }: ReplicaRecord): number {
  return view.version(uid, version)?.template?.priority ?? DEFAULT_PRIORITY;
}

function cpuOf(view: CheckedView, { uid, version }: ReplicaRecord): number {
  return view.version(uid, version)?.template?.resources?.requests?.cpuMillis ?? 0;
}
