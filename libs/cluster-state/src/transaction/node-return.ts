import { clone } from '@bufbuild/protobuf';
import { Event_Category as Category, Event_Severity as Severity } from '@cloudless/api';
import { NodeRecordSchema, type NodeRecord } from '@cloudless/api/store';
import type { ClusterView, Stored } from '../view/view.js';
import type { Transaction } from './transaction.js';

/**
 * Adds the return of a lost node to a transaction, with an event. The commit conflicts when the
 * node record has changed since it was read.
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
  return transaction
    .require('node', id, node)
    .put('node', id, record)
    .event({
      severity: Severity.INFO,
      category: Category.MEMBERSHIP,
      reason: 'NodeReturned',
      message: `node ${id} has returned`,
      nodeId: id,
      causedBy: view.lastEvent({ kind: 'node', nodeId: id }, ['NodeLost']),
    });
}
