import { createHash } from 'node:crypto';
import { clone, create, fromBinary, isMessage, toBinary } from '@bufbuild/protobuf';
import type { DescMessage, DescMethodUnary, MessageShape } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { WorkloadSchema, resolveNamespace } from '@cloudless/api';
import { RequestRecordSchema, type RequestRecord } from '@cloudless/api/store';
import { InvalidInputError } from '@cloudless/base';
import type { ClusterView, Transaction } from '@cloudless/cluster-state';
import type { AuditEntry } from '../audit/audit-log.js';
import type { ApiServerDeps } from '../ports.js';
import { retryOnConflict } from './retry-on-conflict.js';
import type { KeyedMutex } from './keyed-mutex.js';

/** The decision of a mutating call on one view of the state. */
export interface MutationResult<Result> {
  /** The response. */
  readonly response: Result;
  /** Absent: there is nothing to write. */
  readonly transaction?: Transaction;
}

/** A mutating call: its request, and the audit entry that is committed with its change. */
export interface MutatingCall<Request> {
  readonly request: Request;
  readonly entry: AuditEntry;
}

export type MutationDeps = Pick<ApiServerDeps, 'state' | 'clock' | 'random' | 'tracer'> & {
  /** Shared by all mutating calls, so that changes of one object run one at a time. */
  readonly mutex: KeyedMutex;
};

/**
 * Runs a mutating call: reads, decides, commits, and starts again after a conflict. Calls on the
 * same workload, node or plan run one at a time, so only controllers and agents can cause
 * conflicts. With a request id, the response is stored in the same transaction; a repeated call
 * with the same id returns the stored response and changes nothing.
 * @param decide - Called with the current view. It may wait before it reads state, but not between
 *   reading and deciding.
 * @throws the errors of `decide`; kind `exhausted` when too many calls on the same object wait;
 *   `unavailable` when conflicts persist and nothing was written.
 */
export async function runIdempotent<Request extends DescMessage, Response extends DescMessage>(
  deps: MutationDeps,
  method: DescMethodUnary<Request, Response>,
  { request, entry }: MutatingCall<MessageShape<Request> & { readonly requestId: string }>,
  decide: (
    view: ClusterView,
  ) => MutationResult<MessageShape<Response>> | Promise<MutationResult<MessageShape<Response>>>,
): Promise<MessageShape<Response>> {
  const { requestId } = request;
  const bodyHash = requestId === '' ? new Uint8Array() : hashRequest(method.input, request);
  const what = describeSubject(request);
  const attempt = async (): Promise<MessageShape<Response>> => {
    const view = deps.state.view();
    const earlier = requestId === '' ? undefined : view.request(requestId);
    if (earlier !== undefined) return replayResponse(earlier.value, method, bodyHash);
    let decided: MutationResult<MessageShape<Response>>;
    try {
      decided = await decide(view);
    } catch (reason) {
      // During the wait, another call may have executed the same request.
      const meanwhile = requestId === '' ? undefined : deps.state.view().request(requestId);
      if (meanwhile === undefined) throw reason;
      return replayResponse(meanwhile.value, method, bodyHash);
    }
    const { response, transaction = requestId === '' ? undefined : deps.state.transaction() } =
      decided;
    if (transaction === undefined) return response;
    if (requestId !== '') {
      const record = create(RequestRecordSchema, {
        method: method.name,
        bodyHash,
        workloadUid: isMessage(response, WorkloadSchema) ? response.uid : '',
        response: toBinary(method.output, toStoredResponse(response)),
        at: timestampFromMs(deps.clock.wallTime()),
      });
      transaction.require('request', requestId, 'absent').put('request', requestId, record);
    }
    // Reconcilers may start before the commit returns.
    if (isMessage(response, WorkloadSchema)) deps.tracer?.mark(response.uid);
    await entry.commit(transaction);
    return response;
  };
  return deps.mutex.run(what, () => retryOnConflict({ ...deps, subject: what }, attempt));
}

/** Names the object that a request changes: `workload "default/web"`. */
function describeSubject(request: object): string {
  const { name, namespace, nodeId, id } = request as Partial<
    Record<'name' | 'namespace' | 'nodeId' | 'id', string>
  >;
  if (name !== undefined)
    return `workload "${resolveNamespace({ namespace: namespace ?? '' })}/${name}"`;
  return nodeId !== undefined ? `node "${nodeId}"` : `plan "${id ?? ''}"`;
}

/**
 * Removes the replicas from a response, so that its stored form stays small for workloads of every
 * size. The replicas would be outdated at the time of a retry.
 */
function toStoredResponse<Result>(result: Result): Result {
  if (!isMessage(result, WorkloadSchema)) return result;
  const kept = clone(WorkloadSchema, result);
  if (kept.status !== undefined) kept.status.replicas = [];
  return kept as Result;
}

function replayResponse<Request extends DescMessage, Response extends DescMessage>(
  record: RequestRecord,
  method: DescMethodUnary<Request, Response>,
  bodyHash: Uint8Array,
): MessageShape<Response> {
  if (record.method !== method.name || Buffer.compare(record.bodyHash, bodyHash) !== 0) {
    throw new InvalidInputError([
      {
        field: 'request_id',
        message: `was used for another ${record.method} within the last hour; use a new one for a new request`,
      },
    ]);
  }
  return fromBinary(method.output, record.response);
}

function hashRequest<Desc extends DescMessage>(
  schema: Desc,
  request: MessageShape<Desc>,
): Uint8Array {
  const body = Object.assign(clone(schema, request), { requestId: '' });
  return createHash('sha256').update(toBinary(schema, body)).digest();
}
