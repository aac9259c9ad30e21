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

/** What a mutation decided on one view of the state. */
export interface Mutation<Result> {
  /** What the caller gets, as of this mutation. */
  readonly result: Result;
  /** Absent: there is nothing to write. */
  readonly transaction?: Transaction;
}

/** Needs of {@link mutate}. */
export type MutationDeps = Pick<ApiServerDeps, 'state' | 'clock' | 'random' | 'tracer'> & {
  readonly audit: AuditLog;
  /** Shared by all calls that change something, so that changes of one object run one at a time. */
  readonly mutex: KeyedMutex;
};

/**
 * Runs a mutation: reads, decides, commits, and starts over when something it had read changed.
 * Mutations of one workload, node or plan run one at a time, so that only writes of controllers and
 * agents can conflict. With a request id the result is kept in the same transaction, so that a
 * retry gets it again and applies nothing.
 * @param decide - Called with the present view. It may wait, but not between what it reads and what
 *   it decides from that.
 * @throws what `decide` throws; kind `exhausted` when too many mutations of the same object wait;
 *   `unavailable` when others kept changing what it had read, and nothing was written.
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
      // While it waited, another call may have carried out the same request.
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
    // What the commit sets off may begin before it returns.
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
 * What is kept must stay small, whatever the size of the workload; its replicas will have changed
 * by the time of a retry anyway.
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
