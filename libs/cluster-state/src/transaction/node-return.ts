import { clone } from '@bufbuild/protobuf';
import { Event_Category as Category, Event_Severity as Severity } from '@cloudless/api';
import { NodeRecordSchema, type NodeRecord } from '@cloudless/api/store';
import type { ClusterView, Stored } from '../view/view.js';
import type { Transaction } from './transaction.js';

/**
 * Adds the return of a node that is lost, or whose agent had left, to a transaction, with an event.
 * The commit conflicts when the node record has changed since it was read.
 */
export function putNodeReturn(
  transaction: Transaction,
  view: ClusterView,
  node: Stored<NodeRecord>,
): Transaction {
  const { id } = node.value;
  const record = Object.assign(clone(NodeRecordSchema, node.value), {
    lost: false,
    lossConfirmed: false,
  });
  delete record.departure;
  const { lost } = node.value;
  return transaction
    .require('node', id, node)
    .put('node', id, record)
    .event({
      severity: Severity.INFO,
      category: Category.MEMBERSHIP,
      reason: lost ? 'NodeReturned' : 'AgentReturned',
      message: lost
        ? `node ${id} has returned`
        : `node ${id}: the agent has returned within its grace`,
      nodeId: id,
      causedBy: view.lastEvent({ kind: 'node', nodeId: id }, [lost ? 'NodeLost' : 'AgentLeft']),
    });
}
