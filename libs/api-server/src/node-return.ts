import { clone } from '@bufbuild/protobuf';
import { Event_Category as Category, Event_Severity as Severity } from '@cloudless/api';
import { NodeRecordSchema } from '@cloudless/api/store';
import type { ClusterState } from '@cloudless/cluster-state';
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
    const record = Object.assign(clone(NodeRecordSchema, node.value), { lost: false, lossConfirmed: false });
    const transaction = state
      .transaction()
      .require('node', nodeId, node)
      .put('node', nodeId, record)
      .event({
        severity: Severity.INFO,
        category: Category.MEMBERSHIP,
        reason: 'NodeReturned',
        message: `node ${nodeId} is back`,
        nodeId,
        causedBy: state.view().lastEvent({ kind: 'node', nodeId }, ['NodeLost']),
      });
    await state.write(transaction);
  });
}
