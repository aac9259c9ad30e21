import { create } from '@bufbuild/protobuf';
import {
  RecordRefusedCallsResponseSchema,
  type RecordRefusedCallsResponse,
  type RefusedCall,
} from '@cloudless/api';
import { definedFields } from '@cloudless/base';
import type { ClusterState, EventInit } from '@cloudless/cluster-state';
import { createAuditEvent } from '../audit/audit-event.js';

/** Returns the event of a refused call: with a message of this program, whoever has refused. */
export function toRefusalEvent({ audit, errorReason, count, firstTime }: RefusedCall): EventInit {
  const { principal, address, rpc, result, traceId, credentialId, cause } = {
    ...EMPTY_AUDIT,
    ...audit,
  };
  return {
    ...createAuditEvent({
      ...{ principal, address, rpc, result, traceId, credentialId, cause },
      subject: {},
      requestId: '',
    }),
    errorReason,
    ...(count > 1 ? { count, ...definedFields({ firstTime }) } : {}),
  };
}

/** Commits the audit records of calls that another coordinator has refused. */
export async function recordRefusedCalls(
  state: Pick<ClusterState, 'transaction' | 'commitObserved'>,
  calls: readonly RefusedCall[],
): Promise<RecordRefusedCallsResponse> {
  let transaction = state.transaction();
  for (const call of calls) transaction = transaction.event(toRefusalEvent(call));
  if (calls.length > 0) await state.commitObserved(transaction);
  return create(RecordRefusedCallsResponseSchema);
}

const EMPTY_AUDIT = {
  principal: '',
  address: '',
  rpc: '',
  result: '',
  traceId: '',
  credentialId: '',
  cause: '',
};
