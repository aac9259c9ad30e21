import type { ReplicaRecord } from '@cloudless/api/store';
import type { Stored } from '@cloudless/cluster-state';

/**
 * Lists replicas of a workload in ascending order of their sequence numbers. The view mostly has
 * them in this order, so that sorting is rarely needed.
 */
export function listBySequence(
  replicas: Iterable<Stored<ReplicaRecord>>,
): readonly Stored<ReplicaRecord>[] {
  const list: Stored<ReplicaRecord>[] = [];
  let newest = -1n;
  let isSorted = true;
  for (const replica of replicas) {
    const { sequence } = replica.value;
    if (sequence < newest) isSorted = false;
    newest = sequence;
    list.push(replica);
  }
  if (isSorted) return list;
  return list.sort((a, b) => Number(a.value.sequence - b.value.sequence));
}
