import { Event_Category as Category, Event_Severity as Severity } from '@cloudless/api';
import type { ReplicaRecord } from '@cloudless/api/store';
import type { WorkResult } from '@cloudless/base';
import {
  isLive,
  isTombstone,
  putServiceDeletion,
  toNameKeyId,
  toServiceKeyId,
  toVersionKeyId,
  type ClusterState,
  type ClusterView,
  type Stored,
} from '@cloudless/cluster-state';
import { findChangeEvent } from '../common/causes.js';
import { commitOrReconcileAgain } from '../common/commit.js';
import { MAX_PASS_WRITES } from '../rollout/rollout-pass.js';
import { describeRemoval } from './removal-event.js';
import type { WorkloadPass } from './workload-pass.js';

/**
 * Adds the deletion of a workload without replicas, and of the service of its `expose`, to the
 * transaction of a pass. Deletes only versions, and leaves the rest to the next pass, when there are
 * more versions than fit.
 * @param nowMs - Wall-clock milliseconds.
 */
export function addWorkloadRemoval(
  { workload, control, transaction, replicas }: WorkloadPass,
  view: ClusterView,
  nowMs: number,
): void {
  const { uid, namespace, name } = workload.value;
  const versions = view.versions(uid);
  for (const { version } of versions.slice(0, MAX_PASS_WRITES))
    transaction.delete('version', toVersionKeyId(uid, version));
  transaction.require('workload', uid, workload).require('control', uid, control);
  if (versions.length > MAX_PASS_WRITES) return;
  transaction
    .delete('workload', uid)
    .delete('control', uid)
    .delete('evidence', uid)
    .delete('name', toNameKeyId(namespace, name));
  const service = view.service(toServiceKeyId(namespace, name));
  if (service?.value.ownerUid === uid) {
    putServiceDeletion(transaction, service, nowMs);
    transaction.event({
      ...{ severity: Severity.INFO, category: Category.WORKLOAD, reason: 'ServiceDeleted' },
      message: `service ${namespace}/${name} was deleted with its workload`,
      ...{ namespace, workload: name },
      causedBy: findChangeEvent(view, workload.value),
    });
  }
  transaction.event({
    severity: Severity.INFO,
    category: Category.WORKLOAD,
    reason: 'WorkloadDeleted',
    ...describeRemoval({ namespace, name }, replicas),
    namespace,
    workload: name,
    causedBy: findChangeEvent(view, workload.value),
  });
}

/**
 * Deletes the replica records of a deleted workload once the stop of each replica is confirmed.
 * Tombstones stay until their node confirms the stop.
 */
export async function deleteEndedReplicas(
  state: ClusterState,
  replicas: readonly Stored<ReplicaRecord>[],
): Promise<WorkResult> {
  const ended = replicas
    .filter(({ value }) => !isTombstone(value) && !isLive(value))
    .slice(0, MAX_PASS_WRITES);
  if (ended.length === 0) return { kind: 'done' };
  const transaction = state.transaction();
  for (const replica of ended) transaction.deleteReplica(replica);
  return commitOrReconcileAgain(state, transaction);
}
