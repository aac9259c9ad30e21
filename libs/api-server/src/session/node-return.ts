import { clone } from '@bufbuild/protobuf';
import { NodeStatus_Phase as NodePhase } from '@cloudless/api';
import { NodeRecordSchema } from '@cloudless/api/store';
import { putNodeReturn } from '@cloudless/cluster-state';
import { retryOnConflict } from '../mutation/retry-on-conflict.js';
import type { ApiServerDeps } from '../ports.js';

/**
 * Takes a node back after a loss: first into the membership, then into the store. The node may
 * receive orders only after both. In the other order the record would call the node present while
 * its lease is over, and the loss would be written again.
 *
 * The record of a node whose lease was over is always written, even when the record does not
 * contain the loss yet. A loss of the node that was decided before and is committed later therefore
 * conflicts and is void. A loss of the node's replicas conflicts too, or is committed first and the
 * orders reflect it. Otherwise a replica could run here and, being lost, elsewhere as well.
 *
 * @param join - Begins the lease. Called synchronously.
 * @returns Resolves when the record says that the node is not lost, or when the node has no record
 *   any more.
 */
export async function returnNode(
  deps: Pick<ApiServerDeps, 'state' | 'nodes' | 'clock' | 'random'>,
  nodeId: string,
  join: () => void,
): Promise<void> {
  const { state, nodes } = deps;
  let mustWrite = nodes.status(nodeId).phase === NodePhase.LOST;
  join();
  await retryOnConflict({ ...deps, subject: `node "${nodeId}"` }, async () => {
    const node = state.view().node(nodeId);
    if (node === undefined || (!mustWrite && !node.value.lost)) return;
    // After a conflict no write is needed: the record has changed, so an older loss is void.
    mustWrite = false;
    const transaction = state.transaction();
    if (node.value.lost) putNodeReturn(transaction, state.view(), node);
    else
      transaction
        .require('node', nodeId, node)
        .put('node', nodeId, clone(NodeRecordSchema, node.value));
    await state.commitObserved(transaction);
  });
}
