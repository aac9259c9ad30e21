import type { WorkloadPlan } from '@cloudless/api';
import type { NodeRecord, WorkloadRecord } from '@cloudless/api/store';
import { CloudlessError, assertNever } from '@cloudless/base';
import type { ClusterView, Transaction } from '@cloudless/cluster-state';
import { putNodeChange } from '../node/node-change.js';
import { putNodeRemoval, putReplicaDeletions } from '../node/node-removal.js';
import type { JudgedCall } from '../policy/policy-override.js';
import { putRolloutUpdate } from '../rollout/rollout-update.js';
import {
  hasChanges,
  putWorkloadChange,
  type WorkloadChangeDeps,
} from '../workload/workload-change.js';
import { putDeletion } from '../workload/workload-deletion.js';
import type { CheckedChange } from './checked-change.js';

/** The records that the execution of a plan writes. */
export interface WrittenChanges {
  readonly workloads: readonly WorkloadRecord[];
  readonly nodes: readonly NodeRecord[];
}

/**
 * Adds the records and events of all changes of a plan to a transaction, as the RPCs for these
 * changes would. Changes without effect add nothing.
 */
export function putChanges(
  deps: WorkloadChangeDeps,
  view: ClusterView,
  transaction: Transaction,
  changes: readonly CheckedChange[],
  call: JudgedCall,
): WrittenChanges {
  const { requestId } = call;
  const workloads: WorkloadRecord[] = [];
  const nodes: NodeRecord[] = [];
  for (const checked of changes) {
    switch (checked.kind) {
      case 'workload':
        if (hasChanges(checked.change))
          workloads.push(putWorkloadChange(deps, view, transaction, checked.change, call));
        break;
      case 'deletion': {
        const { current, after } = checked.change;
        if (after !== undefined) putDeletion(transaction, current, { ...after, requestId });
        workloads.push(after ?? current.value);
        break;
      }
      case 'rollout': {
        const { records, update } = checked;
        if (update === undefined) break;
        putRolloutUpdate(transaction, records, update, requestId);
        workloads.push(records.workload.value);
        break;
      }
      case 'node': {
        const { current, change } = checked;
        if (change !== undefined) putNodeChange(transaction, current, change, requestId);
        nodes.push(change?.after ?? current.value);
        break;
      }
      case 'removal':
        putReplicaDeletions(transaction, [...view.replicasOn(checked.current.value.id)]);
        putNodeRemoval(transaction, checked.current, requestId);
        break;
      default:
        assertNever(checked);
    }
  }
  return { workloads, nodes };
}

/**
 * Replica records that a plan deletes together with their nodes at most. The execution of a plan is
 * one transaction of at most 100 writes.
 */
const MAX_REMOVED_REPLICAS = 50;

/**
 * Checks that one transaction can delete the replica records of all nodes that a plan removes.
 * @throws kind `exhausted` when there are more than {@link MAX_REMOVED_REPLICAS}.
 */
export function checkRemovedReplicas(view: ClusterView, changes: readonly CheckedChange[]): void {
  const nodeIds = changes.flatMap((checked) =>
    checked.kind === 'removal' ? [checked.current.value.id] : [],
  );
  const count = nodeIds.reduce((sum, nodeId) => sum + [...view.replicasOn(nodeId)].length, 0);
  if (count <= MAX_REMOVED_REPLICAS) return;
  throw new CloudlessError(
    'exhausted',
    `${nodeIds.length === 1 ? `node ${nodeIds[0]} has` : `nodes ${nodeIds.join(', ')} have`} ${count} replica records, and a plan can remove at most ${MAX_REMOVED_REPLICAS} with their nodes; remove nodes without a plan`,
  );
}

/**
 * Conditions that a plan adds to its transaction. The store allows 100; the leadership, the plan
 * record, the guard of the policies and the request id need the rest.
 */
const MAX_COMPARES = 96;

/**
 * Makes a transaction fail when a record that the plans depend on has changed since `view`: each
 * workload with its control record and readiness guard, and the nodes of the placements. Nodes
 * beyond {@link MAX_COMPARES} are omitted; the scheduler notices a change of such a node when it
 * places the replica.
 * @throws kind `exhausted` when the plans affect more workloads than one transaction can compare.
 */
export function requireUnchanged(
  transaction: Transaction,
  view: ClusterView,
  plans: readonly WorkloadPlan[],
): void {
  const workloads = plans.flatMap(
    ({ namespace, name }) => view.workloadByName(namespace, name) ?? [],
  );
  for (const workload of workloads) {
    const { uid } = workload.value;
    transaction
      .require('workload', uid, workload)
      .require('control', uid, view.control(uid) ?? 'absent');
    transaction.require('evidence', uid, view.readinessGuard(uid) ?? 'absent');
  }
  if (transaction.toCompares().length > MAX_COMPARES) {
    throw new CloudlessError(
      'REQUEST_TOO_LARGE',
      `the plan is about ${workloads.length} workloads, more than one transaction can compare; plan fewer changes at a time, or drain without a plan`,
    );
  }
  const nodeIds = new Set(
    plans.flatMap(({ placements }) => placements.map(({ nodeId }) => nodeId)),
  );
  for (const nodeId of nodeIds) {
    if (transaction.toCompares().length < MAX_COMPARES)
      transaction.require('node', nodeId, view.node(nodeId) ?? 'absent');
  }
}
