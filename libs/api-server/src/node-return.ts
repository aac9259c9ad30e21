import { clone } from '@bufbuild/protobuf';
import { NodeStatus_Phase as NodePhase } from '@cloudless/api';
import { NodeRecordSchema } from '@cloudless/api/store';
import { putNodeReturn } from '@cloudless/cluster-state';
import { withoutConflict } from './conflicts.js';
import type { ApiServerDeps } from './ports.js';

/**
 * Takes a node back: first into the membership, then into the store, and only then may the node get orders. In the other
 * order the record would say that the node is there while its lease is still over, and the loss would be written again.
 *
 * The record of a node whose lease was over is always written, also when the loss is not in it yet. A loss that was decided
 * before and is committed after therefore meets a changed record and is void; a loss of the node's replicas likewise, or it
 * comes first and the orders show it. Otherwise a replica could run here and, as lost, elsewhere too.
 *
 * @param join - Begins the lease; called at once.
 * @returns Resolves when the record says that the node is not lost, or when the node is not registered any more.
 */
export async function returnNode(
  deps: Pick<ApiServerDeps, 'state' | 'nodes' | 'clock' | 'random'>,
  nodeId: string,
  join: () => void,
): Promise<void> {
  const { state, nodes } = deps;
  let mustWrite = nodes.status(nodeId).phase === NodePhase.LOST;
  join();
  await withoutConflict({ ...deps, what: `node "${nodeId}"` }, async () => {
    const node = state.view().node(nodeId);
    if (node === undefined || (!mustWrite && !node.value.lost)) return;
    // A conflict is as good: the record has changed, so an older loss is void.
    mustWrite = false;
    const transaction = state.transaction();
    if (node.value.lost) putNodeReturn(transaction, state.view(), node);
    else transaction.require('node', nodeId, node).put('node', nodeId, clone(NodeRecordSchema, node.value));
    await state.write(transaction);
  });
}
