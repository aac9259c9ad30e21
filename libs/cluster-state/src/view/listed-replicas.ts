import type { ReplicaRecord } from '@cloudless/api/store';
import type { ClusterView } from './cluster-view.js';

/**
 * Most replicas in the message of a workload. Each takes up to 8 µs and 500 bytes, and the answer of
 * every change contains the workload. ListReplicas returns more, page by page.
 */
export const MAX_LISTED_REPLICAS = 1_000;

/** The replicas in the message of a workload. */
export interface ListedReplicas {
  /** The oldest replicas, in ascending order of their sequence numbers. */
  readonly replicas: readonly ReplicaRecord[];
  /** Number of the other replicas of the workload. */
  readonly omitted: number;
}

/** Returns the first of the given replicas to list, with the number of the others. */
export function limitListed(replicas: readonly ReplicaRecord[]): ListedReplicas {
  const listed = replicas.slice(0, MAX_LISTED_REPLICAS);
  return { replicas: listed, omitted: replicas.length - listed.length };
}

/** Returns the replicas to list in the message of a workload. Reads no other replica. */
export function getListedReplicas(
  view: Pick<ClusterView, 'replicasInOrder' | 'replicaCounts'>,
  uid: string,
): ListedReplicas {
  const replicas: ReplicaRecord[] = [];
  for (const { value } of view.replicasInOrder(uid)) {
    if (replicas.length === MAX_LISTED_REPLICAS)
      return { replicas, omitted: view.replicaCounts(uid).total - replicas.length };
    replicas.push(value);
  }
  return { replicas, omitted: 0 };
}
