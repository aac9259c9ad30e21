import { createHash } from 'node:crypto';
import { clone, create, fromBinary, toBinary } from '@bufbuild/protobuf';
import type { DescMessage, MessageShape } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { WorkloadSchema, type Workload } from '@cloudless/api';
import { RequestRecordSchema } from '@cloudless/api/store';
import { InvalidInputError } from '@cloudless/base';
import type { ClusterView, Transaction } from '@cloudless/cluster-state';
import { withoutConflict } from './conflicts.js';
import type { ApiServerDeps } from './ports.js';

/** What a mutation decided on one view of the state. */
export interface Mutation {
  /** What the caller gets, as of this mutation. */
  readonly result: Workload;
  /** Absent: there is nothing to write. */
  readonly transaction?: Transaction;
}

/** After this many conflicts in a row somebody else is writing the same workload all the time. */
const MAX_ATTEMPTS = 8;

/**
 * Runs a mutation: reads, decides, commits, and starts over when something it had read changed. With a request id the
 * result is kept in the same transaction, so that a retry gets it again and applies nothing.
 * @param decide - Called with the present view; must not wait.
 */
export async function mutate<Desc extends DescMessage>(
  deps: ApiServerDeps,
  method: string,
  schema: Desc,
  request: MessageShape<Desc> & { readonly requestId: string },
  decide: (view: ClusterView) => Mutation,
): Promise<Workload> {
  const bodyHash = request.requestId === '' ? new Uint8Array() : hashOf(schema, request);
  return withoutConflict(deps.state, MAX_ATTEMPTS, async () => {
    const view = deps.state.view();
    const earlier = request.requestId === '' ? undefined : view.request(request.requestId);
    if (earlier !== undefined) return repeat(earlier.value, method, bodyHash);
    const { result, transaction = request.requestId === '' ? undefined : deps.state.transaction() } = decide(view);
    if (transaction === undefined) return result;
    if (request.requestId !== '') {
      const record = create(RequestRecordSchema, {
        method,
        bodyHash,
        workloadUid: result.uid,
        response: toBinary(WorkloadSchema, withoutReplicas(result)),
        at: timestampFromMs(deps.clock.wallTime()),
      });
      transaction.require('request', request.requestId, 'absent').put('request', request.requestId, record);
    }
    await deps.state.commit(transaction);
    return result;
  });
}

/** What is kept must stay small, whatever the size of the workload; its replicas will have changed by the time of a retry anyway. */
function withoutReplicas(workload: Workload): Workload {
  const kept = clone(WorkloadSchema, workload);
  if (kept.status !== undefined) kept.status.replicas = [];
  return kept;
}

function repeat(
  record: { readonly method: string; readonly bodyHash: Uint8Array; readonly response: Uint8Array },
  method: string,
  bodyHash: Uint8Array,
): Workload {
  if (record.method !== method || Buffer.compare(record.bodyHash, bodyHash) !== 0) {
    throw new InvalidInputError([
      {
        field: 'request_id',
        message: `was used for another ${record.method} within the last hour; use a new one for a new request`,
      },
    ]);
  }
  return fromBinary(WorkloadSchema, record.response);
}

function hashOf<Desc extends DescMessage>(schema: Desc, request: MessageShape<Desc>): Uint8Array {
  const body = Object.assign(clone(schema, request), { requestId: '' });
  return createHash('sha256').update(toBinary(schema, body)).digest();
}
