/** A replica as a workload's status lists it. */
export interface ReplicaFacts {
  /** Name of its workload. */
  readonly workload: string;
  readonly id: string;
  readonly nodeId: string;
  readonly containerId: string;
  readonly restarts: number;
}

/**
 * Compares the replicas of a workload before and after a fault.
 * @param mayBeReplaced - Returns true for a replica that the fault gave a reason to replace.
 * @returns A text for each replica that was restarted, moved or replaced without a reason, and for
 *   each surplus replica.
 */
export function findReplicaChanges(
  before: readonly ReplicaFacts[],
  after: readonly ReplicaFacts[],
  mayBeReplaced: (replica: ReplicaFacts) => boolean = () => false,
): readonly string[] {
  const changes = before.flatMap((replica) => {
    if (mayBeReplaced(replica)) return [];
    const now = after.find(({ id }) => id === replica.id);
    if (now === undefined) return [`${replica.id} on ${replica.nodeId} was replaced`];
    if (now.nodeId !== replica.nodeId) return [`${replica.id} moved to ${now.nodeId}`];
    if (now.restarts !== replica.restarts || now.containerId !== replica.containerId)
      return [`${replica.id} on ${replica.nodeId} was restarted`];
    return [];
  });
  const surplus = after.length - before.length;
  return surplus > 0 ? [...changes, `${surplus} more replicas than before`] : changes;
}
