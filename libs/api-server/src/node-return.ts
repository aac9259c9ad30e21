import { putNodeReturn, type ClusterState } from '@cloudless/cluster-state';
import { withoutConflict } from './conflicts.js';

const MAX_ATTEMPTS = 8;

/**
 * Writes down that a lost node is back, before it is told what to run and counts as alive. A loss of its replicas that is being
 * committed at this moment either comes first, and then the orders show it, or holds no more: otherwise what it ran would be
 * started here and, as lost, elsewhere too.
 */
export function writeReturn(state: ClusterState, nodeId: string): Promise<void> {
  return withoutConflict(MAX_ATTEMPTS, async () => {
    const node = state.view().node(nodeId);
    if (node?.value.lost !== true) return;
    await state.write(putNodeReturn(state.transaction(), state.view(), node));
  });
}
