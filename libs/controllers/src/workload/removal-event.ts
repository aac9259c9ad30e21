import type { ReplicaRecord, WorkloadRecord } from '@cloudless/api/store';
import { isTombstone, type Stored } from '@cloudless/cluster-state';

/**
 * Returns message and replica ids of the event of a deletion. The ids are those of replicas that
 * may still run on lost nodes.
 */
export function describeRemoval(
  { namespace, name }: Pick<WorkloadRecord, 'namespace' | 'name'>,
  replicas: readonly Stored<ReplicaRecord>[],
): { readonly message: string; readonly replicaIds: string[] } {
  const tombstones = replicas.map(({ value }) => value).filter(isTombstone);
  const subject = `workload ${namespace}/${name} is gone: every`;
  if (tombstones.length === 0) return { message: `${subject} node has confirmed`, replicaIds: [] };
  const named = tombstones
    .slice(0, MAX_NAMED)
    .map(({ id, nodeId }) => `${id} on lost node ${nodeId}`);
  const more = tombstones.length > MAX_NAMED ? ` and ${tombstones.length - MAX_NAMED} more` : '';
  const count = tombstones.length === 1 ? '1 replica' : `${tombstones.length} replicas`;
  return {
    message: `${subject} reachable node has confirmed; ${count} may still run: ${named.join(', ')}${more}`,
    replicaIds: tombstones.slice(0, MAX_IDS).map(({ id }) => id),
  };
}

/** Most replicas that the message of a deletion names. */
const MAX_NAMED = 5;
/** Most replica ids in the event of a deletion, so that the event stays small. */
const MAX_IDS = 1_000;
