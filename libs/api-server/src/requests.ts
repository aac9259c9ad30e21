import { createHash } from 'node:crypto';
import { clone, create, fromBinary, isMessage, toBinary } from '@bufbuild/protobuf';
import type { DescMessage, DescMethodUnary, MessageShape } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { WorkloadSchema, namespaceOf } from '@cloudless/api';
import { RequestRecordSchema, type RequestRecord } from '@cloudless/api/store';
import { InvalidInputError } from '@cloudless/base';
import type { ClusterView, Transaction } from '@cloudless/cluster-state';
import { withoutConflict } from './conflicts.js';
import type { AuditLog } from './audit.js';
import type { ApiServerDeps } from './ports.js';
import type { KeyedMutex } from './keyed-mutex.js';

/** The decision of a mutating call on one view of the state. */
export interface Mutation<Result> {
  /** The response. */
  readonly result: Result;
  /** Absent: there is nothing to write. */
  readonly transaction?: Transaction;
}

export type MutationDeps = Pick<ApiServerDeps, 'state' | 'clock' | 'random' | 'tracer'> & {
  readonly audit: AuditLog;
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
export async function mutate<Request extends DescMessage, Response extends DescMessage>(
  deps: MutationDeps,
  method: DescMethodUnary<Request, Response>,
  request: MessageShape<Request> & { readonly requestId: string },
  decide: (
    view: ClusterView,
  ) => Mutation<MessageShape<Response>> | Promise<Mutation<MessageShape<Response>>>,
): Promise<MessageShape<Response>> {
  const { requestId } = request;
  const bodyHash = requestId === '' ? new Uint8Array() : hashOf(method.input, request);
  const what = describeObject(request);
  const attempt = async (): Promise<MessageShape<Response>> => {
    const view = deps.state.view();
    const earlier = requestId === '' ? undefined : view.request(requestId);
    if (earlier !== undefined) return repeat(earlier.value, method, bodyHash);
    let decided: Mutation<MessageShape<Response>>;
    try {
      decided = await decide(view);
    } catch (reason) {
      // During the wait, another call may have executed the same request.
      const meanwhile = requestId === '' ? undefined : deps.state.view().request(requestId);
      if (meanwhile === undefined) throw reason;
      return repeat(meanwhile.value, method, bodyHash);
    }
    const { result, transaction = requestId === '' ? undefined : deps.state.transaction() } =
      decided;
    if (transaction === undefined) return result;
    if (requestId !== '') {
      const record = create(RequestRecordSchema, {
        method: method.name,
        bodyHash,
        workloadUid: isMessage(result, WorkloadSchema) ? result.uid : '',
        response: toBinary(method.output, toKept(result)),
        at: timestampFromMs(deps.clock.wallTime()),
      });
      transaction.require('request', requestId, 'absent').put('request', requestId, record);
    }
    // Reconcilers may start before the commit returns.
    if (isMessage(result, WorkloadSchema)) deps.tracer?.mark(result.uid);
    await deps.audit.actOf(request).commit(transaction);
    return result;
  };
  return deps.mutex.run(what, () => withoutConflict({ ...deps, what }, attempt));
}

/** Names the object that a request changes: `workload "default/web"`. */
function describeObject(request: object): string {
  const { name, namespace, nodeId, id } = request as Partial<
    Record<'name' | 'namespace' | 'nodeId' | 'id', string>
  >;
  if (name !== undefined)
    return `workload "${namespaceOf({ namespace: namespace ?? '' })}/${name}"`;
  return nodeId !== undefined ? `node "${nodeId}"` : `plan "${id ?? ''}"`;
}

/**
 * Removes the replicas from a response, so that its stored form stays small for workloads of every
 * size. The replicas would be outdated at the time of a retry.
 */
function toKept<Result>(result: Result): Result {
  if (!isMessage(result, WorkloadSchema)) return result;
  const kept = clone(WorkloadSchema, result);
  if (kept.status !== undefined) kept.status.replicas = [];
  return kept as Result;
}

function repeat<Request extends DescMessage, Response extends DescMessage>(
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

function hashOf<Desc extends DescMessage>(schema: Desc, request: MessageShape<Desc>): Uint8Array {
  const body = Object.assign(clone(schema, request), { requestId: '' });
  return createHash('sha256').update(toBinary(schema, body)).digest();
}
