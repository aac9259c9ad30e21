import { clone } from '@bufbuild/protobuf';
import {
  Event_Category as Category,
  Event_Severity as Severity,
  NodeStatus_Phase as NodePhase,
} from '@cloudless/api';
import { NodeRecordSchema, type NodeRecord } from '@cloudless/api/store';
import { CloudlessError } from '@cloudless/base';
import type { ClusterView, Stored, Transaction } from '@cloudless/cluster-state';
import type { ApiServerDeps } from '../ports.js';
import type { NodeChange } from './drain.js';

/** Cordons a node. Returns undefined when the node is cordoned already. */
export function cordonNode(before: NodeRecord): NodeChange | undefined {
  if (before.cordoned) return undefined;
  const after = Object.assign(clone(NodeRecordSchema, before), { cordoned: true });
  return { after, reason: 'NodeCordoned', message: `node ${after.id} accepts no new replicas` };
}

/**
 * Confirms that the machine of a node is dead. Returns undefined when that is confirmed already.
 * @param phase - Phase of the node now.
 * @throws kind `precondition` when the node is neither lost nor away.
 */
export function confirmLoss(before: NodeRecord, phase: NodePhase): NodeChange | undefined {
  if (phase !== NodePhase.LOST && phase !== NodePhase.AWAY) {
    throw new CloudlessError(
      'NODE_NOT_LOST',
      `node "${before.id}" is ${NodePhase[phase]}, not LOST or AWAY; wait until its lease has ended, or drain it while it is connected`,
    );
  }
  if (before.lossConfirmed) return undefined;
  const after = Object.assign(clone(NodeRecordSchema, before), { lossConfirmed: true });
  const message = `node ${after.id} was confirmed dead: its replicas are replaced at once`;
  return { after, reason: 'NodeLossConfirmed', message };
}

/**
 * Releases the replacement brake for a node whose loss is confirmed, and ends its leave grace. Call
 * it after the commit of {@link confirmLoss}, also after a repeated call: the stored response of an
 * older call says nothing about the node now, which may have returned since, or may be lost for
 * another time.
 */
export function releaseBrakeOf(
  { state, nodes }: Pick<ApiServerDeps, 'state' | 'nodes'>,
  nodeId: string,
): void {
  if (state.view().node(nodeId)?.value.lossConfirmed === true) nodes.confirmLost(nodeId);
}

/**
 * Returns the record of a node.
 * @throws kind `notFound` when there is no such node.
 */
export function requireNode(view: Pick<ClusterView, 'node'>, nodeId: string): Stored<NodeRecord> {
  const node = view.node(nodeId);
  if (node !== undefined) return node;
  throw new CloudlessError('NODE_NOT_FOUND', `node "${nodeId}" not found`);
}

/**
 * Adds a changed node record and its event to a transaction, which then fails when the record has
 * changed since `current` was read.
 */
export function putNodeChange(
  transaction: Transaction,
  current: Stored<NodeRecord>,
  { after, ...event }: NodeChange,
  requestId: string,
): Transaction {
  return transaction
    .require('node', after.id, current)
    .put('node', after.id, after)
    .event({ ...createNodeEventFields(after, { requestId }), ...event });
}

/** Fields that all events about a change of a node share. */
export function createNodeEventFields(
  { id }: NodeRecord,
  { requestId }: { readonly requestId: string },
) {
  return { severity: Severity.INFO, category: Category.MEMBERSHIP, nodeId: id, requestId };
}
