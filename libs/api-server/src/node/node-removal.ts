import { NodeStatus_Phase as NodePhase, type RemoveNodeRequest } from '@cloudless/api';
import type { NodeRecord, ReplicaRecord } from '@cloudless/api/store';
import { CloudlessError } from '@cloudless/base';
import {
  holdsResources,
  toReplicaKeyId,
  type ClusterView,
  type Stored,
  type Transaction,
} from '@cloudless/cluster-state';
import type { AuditEntry } from '../audit/audit-log.js';
import type { ApiServerDeps } from '../ports.js';
import { createNodeEventFields, requireNode } from './node-change.js';

/**
 * Replica records that one commit deletes. The audit record included, a commit stays below the
 * store's limit of 100 writes in a transaction.
 */
const MAX_REMOVED_PER_COMMIT = 80;

/**
 * Returns the record of a node that may be removed.
 * @throws kind `notFound` when there is no such node; `precondition` when the node is connected, or
 *   has replicas without `force`.
 */
export function requireRemovable(
  { nodes }: Pick<ApiServerDeps, 'nodes'>,
  view: ClusterView,
  { nodeId, force }: Pick<RemoveNodeRequest, 'nodeId' | 'force'>,
): Stored<NodeRecord> {
  const node = requireNode(view, nodeId);
  const live = [...view.replicasOn(nodeId)].filter(({ value }) => holdsResources(value));
  if (!force && live.length > 0) {
    throw new CloudlessError(
      'NODE_IN_USE',
      `node "${nodeId}" holds ${live.length} replicas; drain it first, or remove it with force`,
    );
  }
  if (nodes.status(nodeId).phase === NodePhase.READY) {
    throw new CloudlessError(
      'NODE_IN_USE',
      `node "${nodeId}" is connected; stop its agent first, or it would enrol again at once`,
    );
  }
  return node;
}

/** Adds the removal of a node record and its event to a transaction. */
export function putNodeRemoval(
  transaction: Transaction,
  node: Stored<NodeRecord>,
  requestId: string,
): void {
  const { id } = node.value;
  transaction
    .require('node', id, node)
    .delete('node', id)
    .event({
      ...createNodeEventFields(node.value, { requestId }),
      reason: 'NodeRemoved',
      message: `node ${id} was removed`,
    });
}

/** Adds the deletion of replica records to a transaction. */
export function putReplicaDeletions(
  transaction: Transaction,
  replicas: readonly Stored<ReplicaRecord>[],
): void {
  for (const { value } of replicas)
    transaction.delete('replica', toReplicaKeyId(value.uid, value.sequence));
}

/** Deletes the records of all replicas on a node, in as many commits as necessary. */
export async function deleteReplicasOn(
  state: ApiServerDeps['state'],
  nodeId: string,
  entry: AuditEntry,
): Promise<void> {
  for (;;) {
    const replicas = [...state.view().replicasOn(nodeId)].slice(0, MAX_REMOVED_PER_COMMIT);
    if (replicas.length === 0) return;
    const transaction = state.transaction();
    putReplicaDeletions(transaction, replicas);
    await entry.commit(transaction);
  }
}

/**
 * Finishes a removal after its commit: deletes the replicas that were placed on the node meanwhile,
 * and its live state. Without effect when the node exists: the call may be a repeated one, and
 * another machine may have enrolled under the node id since.
 */
export async function finishRemoval(
  { state, nodes }: Pick<ApiServerDeps, 'state' | 'nodes'>,
  nodeId: string,
  entry: AuditEntry,
): Promise<void> {
  if (state.view().node(nodeId) !== undefined) return;
  // Without a node record, no more replicas can be placed.
  await deleteReplicasOn(state, nodeId, entry);
  nodes.removeNode(nodeId);
}
