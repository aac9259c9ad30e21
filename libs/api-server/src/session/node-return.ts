import { clone } from '@bufbuild/protobuf';
import { NodeStatus_Phase as NodePhase, type ReplicaReport } from '@cloudless/api';
import { NodeRecordSchema } from '@cloudless/api/store';
import { putNodeReturn } from '@cloudless/cluster-state';
import { retryOnConflict } from '../mutation/retry-on-conflict.js';
import type { ApiServerDeps } from '../ports.js';
import { findTakenBack, NONE_TAKEN_BACK, putTakenBack } from './take-back.js';

/**
 * Attempts to take replicas back, without a commit in between, before the node returns without its
 * remaining lost replicas. A commit that takes replicas back depends on records that rollouts and
 * the scheduler change; the return itself must not wait for them.
 */
const MAX_TAKE_BACK_ATTEMPTS = 3;

/**
 * Ends the loss, or the departure, of a node whose agent is connected again: begins the lease
 * first, then writes the node record. Send the orders of the inventory only after that. If the
 * record were written first, the node reconciler would see a present node without a lease, and would
 * write the loss again.
 *
 * When the lease of the node had ended, the record is written even if it does not contain the loss
 * yet. A loss of the node that the node reconciler has decided but not committed then conflicts and
 * has no effect. A loss of the replicas of the node conflicts too, or is committed first, and the
 * orders then contain it. Without this write, a replica could run on the node and, declared lost,
 * be replaced on another node as well. The same holds while the agent is away, when the node
 * reconciler replaces EXCLUSIVE replicas.
 *
 * When more lost replicas continue than one commit can take back, the others follow in further
 * commits, and the last commit ends the loss: until then the scheduler gives the node to no
 * replacement, which would then be ordered to start beside the replica.
 *
 * @param join - Begins the lease of the node. Called synchronously, once.
 * @param listReports - Returns the complete inventory of the agent, called before each commit.
 *   Undefined once the session has ended: a loss in the record then stays for the next session,
 *   which has a newer inventory. Default: no reports, so that no lost replica is taken back.
 * @returns Resolves when the record says that the node is neither lost nor away, when the node has
 *   no record any more, or when the session has ended.
 * @throws kind `unavailable` when store conflicts persist.
 */
export async function returnNode(
  deps: Pick<ApiServerDeps, 'state' | 'nodes' | 'clock' | 'random'>,
  nodeId: string,
  join: () => void,
  listReports: () => Iterable<ReplicaReport> | undefined = () => [],
): Promise<void> {
  const { state, nodes } = deps;
  const { phase } = nodes.status(nodeId);
  let mustWrite = phase === NodePhase.LOST || phase === NodePhase.AWAY;
  join();
  let isReturned = false;
  while (!isReturned) {
    let attempts = 0;
    isReturned = await retryOnConflict({ ...deps, subject: `node "${nodeId}"` }, async () => {
      const node = state.view().node(nodeId);
      if (node === undefined) return true;
      const { lost, departure } = node.value;
      if (!mustWrite && !lost && departure === undefined) return true;
      const reports = listReports();
      if (lost && reports === undefined) return true;
      // After a conflict the record has changed, so an older decision conflicts without this write.
      mustWrite = false;
      attempts += 1;
      // In a store that was rolled back, an operator decides what happens to replicas.
      const takesBack =
        lost && state.storeRolledBack === undefined && attempts <= MAX_TAKE_BACK_ATTEMPTS;
      const { taken, hasMore } = takesBack
        ? findTakenBack(deps, nodeId, reports ?? [])
        : NONE_TAKEN_BACK;
      const transaction = state.transaction();
      if (!hasMore && (lost || departure !== undefined))
        putNodeReturn(transaction, state.view(), node);
      else
        transaction
          .require('node', nodeId, node)
          .put('node', nodeId, clone(NodeRecordSchema, node.value));
      putTakenBack(deps, transaction, nodeId, taken);
      await state.commitObserved(transaction);
      return !hasMore;
    });
  }
}
