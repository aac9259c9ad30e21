import type { ReplicaRecord } from '@cloudless/api/store';
import { toNodeId, toReplicaId } from '@cloudless/base';
import { waitsForNode, type Stored } from '@cloudless/cluster-state';
import type { Cluster, Placement, PlacementRequest } from '@cloudless/scheduler';

/** Begin of the stop reason of a preempted replica. */
export const PREEMPTED_BY = 'preempted by ';

/** Returns true for a replica that was ordered to stop by a preemption. */
export function isPreempted({
  desiredRunning,
  stopReason,
}: Pick<ReplicaRecord, 'desiredRunning' | 'stopReason'>): boolean {
  return !desiredRunning && stopReason.startsWith(PREEMPTED_BY);
}

/**
 * Returns true for a nominated replica: a waiting replica that holds its resources on a node until
 * the replicas that were preempted for it have stopped.
 */
export function isNominated(
  replica: Pick<ReplicaRecord, 'nominatedNodeId' | 'nodeId' | 'desiredRunning' | 'phase'>,
): boolean {
  return replica.nominatedNodeId !== '' && waitsForNode(replica);
}

/**
 * Makes a decision as if the replicas held nothing by their nominations, which are reserved again
 * afterwards.
 * @param request - The request of all replicas.
 */
export function withoutNominations<Decision>(
  cluster: Pick<Cluster, 'reserve' | 'release'>,
  request: PlacementRequest,
  replicas: readonly ReplicaRecord[],
  decide: () => Decision,
): Decision {
  const nominated = replicas.filter(isNominated);
  for (const { id } of nominated) cluster.release(toReplicaId(id));
  try {
    return decide();
  } finally {
    for (const { id, nominatedNodeId } of nominated)
      cluster.reserve({
        ...request,
        replicaId: toReplicaId(id),
        nodeId: toNodeId(nominatedNodeId),
      });
  }
}

/**
 * Orders replicas of equal requirements for their placements: a placement on a node goes to a
 * replica that is nominated there, else to a replica without a nomination, so that no nomination is
 * lost without need.
 */
export function matchNominations(
  replicas: readonly Stored<ReplicaRecord>[],
  placements: readonly Placement[],
): readonly Stored<ReplicaRecord>[] {
  if (!replicas.some(({ value }) => isNominated(value))) return replicas;
  const left = new Set(replicas);
  const take = (
    accepts: (replica: ReplicaRecord) => boolean,
  ): Stored<ReplicaRecord> | undefined => {
    for (const replica of left) {
      if (!accepts(replica.value)) continue;
      left.delete(replica);
      return replica;
    }
    return undefined;
  };
  const matched = placements.map((placement) =>
    placement.placed
      ? take((replica) => isNominated(replica) && replica.nominatedNodeId === placement.nodeId)
      : undefined,
  );
  const filled = matched.map((replica, index) =>
    replica === undefined && placements[index]?.placed === true
      ? take((other) => !isNominated(other))
      : replica,
  );
  const placed = filled.map((replica) => replica ?? take(() => true));
  return [...placed.flatMap((replica) => replica ?? []), ...left];
}
