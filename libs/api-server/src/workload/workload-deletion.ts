import { clone } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import type { DeleteWorkloadRequest } from '@cloudless/api';
import { WorkloadRecordSchema, type WorkloadRecord } from '@cloudless/api/store';
import type { ClusterView, Stored, Transaction } from '@cloudless/cluster-state';
import { checkWorkloadGeneration, requireWorkload } from '../lookup.js';
import { createEventFields } from './workload-change.js';

/** The request to delete a workload. */
export interface WorkloadDeletion {
  readonly current: Stored<WorkloadRecord>;
  /** The record with the requested deletion; undefined when the workload is being deleted already. */
  readonly after: WorkloadRecord | undefined;
}

/**
 * Plans the deletion of a workload.
 * @param nowMs - Wall-clock milliseconds.
 * @throws kind `notFound` when there is no such workload, `conflict` when its generation is not the
 *   expected one.
 */
export function planDeletion(
  view: ClusterView,
  request: DeleteWorkloadRequest,
  nowMs: number,
): WorkloadDeletion {
  const current = requireWorkload(view, request);
  checkWorkloadGeneration(current.value, request.expectedGeneration);
  if (current.value.deletionRequestedAt !== undefined) return { current, after: undefined };
  const after = Object.assign(clone(WorkloadRecordSchema, current.value), {
    deletionRequestedAt: timestampFromMs(nowMs),
    requestId: request.requestId,
  });
  return { current, after };
}

/** Adds the deletion of a workload and its event to a transaction. */
export function putDeletion(
  transaction: Transaction,
  current: Stored<WorkloadRecord>,
  after: WorkloadRecord,
): void {
  const { uid, namespace, name, requestId } = after;
  transaction
    .require('workload', uid, current)
    .put('workload', uid, after)
    .event({
      ...createEventFields(after, requestId),
      reason: 'WorkloadDeletionRequested',
      message: `deletion of ${namespace}/${name} was requested`,
    });
}
