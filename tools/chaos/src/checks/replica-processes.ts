/** A process that has the environment of a replica. */
export interface ReplicaProcess {
  readonly pid: number;
  readonly workload: string;
  readonly replicaId: string;
}

/**
 * Compares the processes on all machines with the replicas that the cluster lists.
 * @param wanted - Ids of the replicas by workload. Processes of other workloads are ignored.
 * @returns A text for each replica that has not exactly one process, and for each process without a
 *   replica.
 */
export function findProcessFaults(
  processes: readonly ReplicaProcess[],
  wanted: ReadonlyMap<string, readonly string[]>,
): readonly string[] {
  return [...wanted].flatMap(([workload, ids]) => {
    const own = processes.filter((each) => each.workload === workload);
    const counts = ids.map((id) => own.filter(({ replicaId }) => replicaId === id).length);
    return [
      ...ids.flatMap((id, index) =>
        counts[index] === 1 ? [] : [`${workload}: ${id} has ${counts[index]} processes`],
      ),
      ...own
        .filter(({ replicaId }) => !ids.includes(replicaId))
        .map(({ pid, replicaId }) => `${workload}: process ${pid} of ${replicaId} still runs`),
    ];
  });
}
