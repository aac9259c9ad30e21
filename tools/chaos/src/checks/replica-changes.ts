/** A replica as a workload's status lists it. */
export interface ReplicaFacts {
  /** Name of its workload. */
  readonly workload: string;
  readonly id: string;
  readonly nodeId: string;
  readonly containerId: string;
  readonly restarts: number;
  readonly failedStarts: number;
}

/** A difference between the replicas before and after a fault. */
export interface ReplicaChange {
  /** Names the replica and what happened. */
  readonly text: string;
  /** Node of the replica before the fault; absent for surplus replicas. */
  readonly nodeId?: string;
}

/**
 * Compares the replicas of a workload before and after a fault.
 * @param mayBeReplaced - Returns true for a replica that the fault gave a reason to replace.
 * @returns A change for each replica that was restarted, had failed starts, moved or was replaced
 *   without a reason, and one for all surplus replicas.
 */
export function findReplicaChanges(
  before: readonly ReplicaFacts[],
  after: readonly ReplicaFacts[],
  mayBeReplaced: (replica: ReplicaFacts) => boolean = () => false,
): readonly ReplicaChange[] {
  const changes = before.flatMap((replica): readonly ReplicaChange[] => {
    const { id, nodeId } = replica;
    if (mayBeReplaced(replica)) return [];
    const now = after.find((each) => each.id === id);
    if (now === undefined) return [{ text: `${id} on ${nodeId} was replaced`, nodeId }];
    if (now.nodeId !== nodeId) return [{ text: `${id} moved to ${now.nodeId}`, nodeId }];
    if (now.restarts !== replica.restarts || now.containerId !== replica.containerId)
      return [{ text: `${id} on ${nodeId} was restarted`, nodeId }];
    if (now.failedStarts !== replica.failedStarts)
      return [{ text: `${id} on ${nodeId} had failed starts`, nodeId }];
    return [];
  });
  const surplus = after.length - before.length;
  return surplus > 0 ? [...changes, { text: `${surplus} more replicas than before` }] : changes;
}

/** Changes of replicas, sorted by whether the speed of the machine may have caused them. */
export interface JudgedChanges {
  /** Broken promises. */
  readonly violations: readonly string[];
  /** Changes on nodes that were lost because their agents were late. */
  readonly late: readonly string[];
}

/**
 * Sorts changes of the replicas of a workload.
 * @param losses - Why nodes were lost since the fault began, by node: the text of the event.
 * @param judgesTimes - False: an agent may take longer than its lease to find the next leader, so
 *   that a change on a lost node is no violation.
 */
export function judgeReplicaChanges(
  workload: string,
  changes: readonly ReplicaChange[],
  {
    losses,
    judgesTimes,
  }: { readonly losses: ReadonlyMap<string, string>; readonly judgesTimes: boolean },
): JudgedChanges {
  const violations: string[] = [];
  const late: string[] = [];
  for (const { text, nodeId } of changes) {
    const loss = nodeId === undefined ? undefined : losses.get(nodeId);
    const isExcused = loss !== undefined && !judgesTimes;
    const why = loss === undefined ? '' : ` (${loss})`;
    (isExcused ? late : violations).push(`${workload}: ${text}${why}`);
  }
  return { violations, late };
}
