import { clone } from '@bufbuild/protobuf';
import { NodeStatus_Phase as NodePhase, type ReplicaReport } from '@cloudless/api';
import { NodeRecordSchema } from '@cloudless/api/store';
import { putNodeReturn } from '@cloudless/cluster-state';
import { retryOnConflict } from '../mutation/retry-on-conflict.js';
import type { ApiServerDeps } from '../ports.js';
import { putTakenBackReplicas } from './take-back.js';

/**
 * Ends the loss, or the departure, of a node whose agent is connected again: begins the lease
 * first, then writes the node record. Send orders to the node only after that. If the record were
 * written first, the node reconciler would see a present node without a lease, and would write the
 * loss again.
 *
 * When the lease of the node had ended, the record is written even if it does not contain the loss
 * yet. A loss of the node that the node reconciler has decided but not committed then conflicts and
 * has no effect. A loss of the replicas of the node conflicts too, or is committed first, and the
 * orders then contain it. Without this write, a replica could run on the node and, declared lost,
 * be replaced on another node as well. The same holds while the agent is away, when the node
 * reconciler replaces EXCLUSIVE replicas.
 *
 * @param join - Begins the lease of the node. Called synchronously, once.
 * @param inventory - The complete inventory of the agent. Default: not known, so that no lost
 *   replica is taken back.
 * @returns Resolves when the record says that the node is neither lost nor away, or when the node
 *   has no record any more.
 * @throws kind `unavailable` when store conflicts persist.
 */
export async function returnNode(
  deps: Pick<ApiServerDeps, 'state' | 'nodes' | 'clock' | 'random'>,
  nodeId: string,
  join: () => void,
  inventory: readonly ReplicaReport[] = [],
): Promise<void> {
  const { state, nodes } = deps;
  const { phase } = nodes.status(nodeId);
  let mustWrite = phase === NodePhase.LOST || phase === NodePhase.AWAY;
  join();
  await retryOnConflict({ ...deps, subject: `node "${nodeId}"` }, async () => {
    const node = state.view().node(nodeId);
    if (node === undefined) return;
    const { lost, departure } = node.value;
    if (!mustWrite && !lost && departure === undefined) return;
    // After a conflict the record has changed, so an older decision conflicts without this write.
    mustWrite = false;
    const transaction = state.transaction();
    if (lost || departure !== undefined) {
      putNodeReturn(transaction, state.view(), node);
      // In a store that was rolled back, an operator decides what happens to replicas.
      if (lost && state.storeRolledBack === undefined)
        putTakenBackReplicas(deps, transaction, nodeId, inventory);
    } else
      transaction
        .require('node', nodeId, node)
        .put('node', nodeId, clone(NodeRecordSchema, node.value));
    await state.commitObserved(transaction);
  });
}
