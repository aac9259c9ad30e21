import type { ReplicaRecord } from '@cloudless/api/store';
import { holdsResources } from '@cloudless/cluster-state';

/** A replica that leaves its node, a new replica, or both as a pair. */
export interface ReplicaMove {
  /** The replica that leaves; undefined for a new replica that takes no other's place. */
  readonly leaving: ReplicaRecord | undefined;
  /** The new replica; undefined when none takes the place. */
  readonly arriving: ReplicaRecord | undefined;
}

/**
 * Compares the replicas of a workload before and after a simulation. Each replica that leaves is
 * paired with a new replica: on the same node when there is one, else in the order of their
 * sequence numbers.
 */
export function listReplicaMoves(
  before: readonly ReplicaRecord[],
  after: readonly ReplicaRecord[],
): readonly ReplicaMove[] {
  const placedBefore = new Map(before.filter(isPlaced).map((replica) => [replica.id, replica]));
  const placedAfter = new Map(after.filter(isPlaced).map((replica) => [replica.id, replica]));
  const leaving = [...placedBefore.values()].filter(({ id }) => !placedAfter.has(id)).sort(byAge);
  const arriving = [...placedAfter.values()].filter(({ id }) => !placedBefore.has(id)).sort(byAge);
  const onSameNode = new Map<string, ReplicaRecord[]>();
  for (const replica of arriving)
    onSameNode.set(replica.nodeId, [...(onSameNode.get(replica.nodeId) ?? []), replica]);
  const paired = new Set<ReplicaRecord>();
  const moves: ReplicaMove[] = [];
  const unpaired: ReplicaRecord[] = [];
  for (const replica of leaving) {
    const match = onSameNode.get(replica.nodeId)?.shift();
    if (match === undefined) unpaired.push(replica);
    else {
      paired.add(match);
      moves.push({ leaving: replica, arriving: match });
    }
  }
  const rest = arriving.filter((replica) => !paired.has(replica));
  for (let index = 0; index < Math.max(unpaired.length, rest.length); index += 1)
    moves.push({ leaving: unpaired[index], arriving: rest[index] });
  return moves;
}

/** Returns true for a replica that runs, or is to run, on a node. */
function isPlaced(replica: ReplicaRecord): boolean {
  return replica.desiredRunning && holdsResources(replica);
}

function byAge(a: ReplicaRecord, b: ReplicaRecord): number {
  return Number(a.sequence - b.sequence);
}
