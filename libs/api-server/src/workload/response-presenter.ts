import type { HandlerContext } from '@connectrpc/connect';
import { isBinaryCall, type Workload } from '@cloudless/api';
import type { WorkloadRecord } from '@cloudless/api/store';
import type { ApiServerDeps } from '../ports.js';

/**
 * Returns the function that builds the response of a call that changes a workload: with versions and
 * the oldest replicas. For a binary call, the replicas are encoded already.
 */
export function createResponsePresenter(
  { presenter }: Pick<ApiServerDeps, 'presenter'>,
  { requestHeader }: Pick<HandlerContext, 'requestHeader'>,
): (record: WorkloadRecord) => Workload {
  return isBinaryCall(requestHeader)
    ? (record) => presenter.presentWithEncodedReplicas(record)
    : (record) => presenter.present(record, /* full */ true);
}
