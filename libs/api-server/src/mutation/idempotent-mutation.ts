import { createHash, createHmac } from 'node:crypto';
import { clone, create, fromBinary, isMessage, toBinary } from '@bufbuild/protobuf';
import type { DescMessage, DescMethodUnary, MessageShape } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { SecretSchema, WorkloadSchema, resolveNamespace } from '@cloudless/api';
import { RequestRecordSchema, type RequestRecord } from '@cloudless/api/store';
import { InvalidInputError } from '@cloudless/base';
import type { ClusterView, Transaction } from '@cloudless/cluster-state';
import { ANONYMOUS_LOOPBACK } from '@cloudless/identity';
import type { AuditEntry } from '../audit/audit-log.js';
import type { ApiServerDeps } from '../ports.js';
import { retryOnConflict } from './retry-on-conflict.js';
import type { KeyedMutex } from './keyed-mutex.js';

/** The decision of a mutating call on one view of the state. */
export interface MutationResult<Result> {
  readonly response: Result;
  /** The writes of the call. Absent when the call changes nothing. */
  readonly transaction?: Transaction;
}

/** A mutating call: its request, and the audit entry that is committed with its change. */
export interface MutatingCall<Request> {
  readonly request: Request;
  readonly entry: AuditEntry;
  /**
   * The changed object, for error messages: `service "default/web"`. Calls on the same object run one
   * at a time. Default: by the fields of the request.
   */
  readonly subject?: string;
  /**
   * Name of a record that the call changes beside its subject. Calls with the same name run one at a
   * time. Default: the call changes no such record.
   */
  readonly sharedWith?: string;
  /**
   * Key of the hash that is stored of the request, so that nobody can guess secret values by their
   * hash. Default: a hash without a key.
   */
  readonly bodyHashKey?: Uint8Array;
}

export type MutationDeps = Pick<ApiServerDeps, 'state' | 'clock' | 'random' | 'tracer'> & {
  /** Shared by all mutating calls, so that changes of one object run one at a time. */
  readonly mutex: KeyedMutex;
};

/**
 * Runs a mutating call: calls `decide`, commits its transaction, and starts again after a conflict.
 * Calls on the same workload, node or plan run one at a time, so only controllers and agents cause
 * conflicts. With a request id, the response is stored in the same transaction; a repeated call
 * with the same id and body returns the stored response and changes nothing.
 * @param decide - Called with the current view, once for each attempt. May await other work before
 *   it reads the state, but must decide without awaiting after that.
 * @param checkReplay - Checks that the caller may still receive a stored response.
 * @throws the errors of `decide`; kind `invalid` when the request id was used for another call;
 *   `exhausted` when too many calls on the same object wait; `unavailable` when conflicts persist
 *   and nothing was written.
 */
export async function runIdempotent<Request extends DescMessage, Response extends DescMessage>(
  deps: MutationDeps,
  method: DescMethodUnary<Request, Response>,
  {
    request,
    entry,
    subject = describeSubject(request),
    sharedWith,
    bodyHashKey,
  }: MutatingCall<MessageShape<Request> & { readonly requestId: string }>,
  decide: (
    view: ClusterView,
  ) => MutationResult<MessageShape<Response>> | Promise<MutationResult<MessageShape<Response>>>,
  checkReplay: (response: MessageShape<Response>) => void = () => undefined,
): Promise<MessageShape<Response>> {
  const { requestId } = request;
  const principal = entry.caller.principal.name;
  const replay = (record: RequestRecord): MessageShape<Response> => {
    const response = replayResponse(record, method, bodyHash, principal);
    checkReplay(response);
    return response;
  };
  const bodyHash =
    requestId === '' ? new Uint8Array() : hashRequest(method.input, request, bodyHashKey);
  const attempt = async (): Promise<MessageShape<Response>> => {
    const view = deps.state.view();
    const earlier = requestId === '' ? undefined : view.request(requestId);
    if (earlier !== undefined) return replay(earlier.value);
    let decided: MutationResult<MessageShape<Response>>;
    try {
      decided = await decide(view);
    } catch (reason) {
      // While `decide` awaited other work, a call with the same id may have committed.
      const meanwhile = requestId === '' ? undefined : deps.state.view().request(requestId);
      if (meanwhile === undefined) throw reason;
      return replay(meanwhile.value);
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
        principal,
      });
      transaction.require('request', requestId, 'absent').put('request', requestId, record);
    }
    // Reconcilers may start before the commit returns.
    if (isMessage(response, WorkloadSchema)) deps.tracer?.mark(response.uid);
    await entry.commit(transaction);
    return response;
  };
  const run = (): Promise<MessageShape<Response>> =>
    deps.mutex.run(subject, () => retryOnConflict({ ...deps, subject }, attempt));
  // Whoever holds a subject never waits for what is shared, so the two cannot block each other.
  return sharedWith === undefined ? run() : deps.mutex.run(sharedWith, run);
}

/** Returns the object that a request changes, for error messages: `workload "default/web"`. */
function describeSubject(request: object): string {
  const { name, namespace, nodeId, id } = request as Partial<
    Record<'name' | 'namespace' | 'nodeId' | 'id', string>
  >;
  if (name !== undefined)
    return `workload "${resolveNamespace({ namespace: namespace ?? '' })}/${name}"`;
  return nodeId !== undefined ? `node "${nodeId}"` : `plan "${id ?? ''}"`;
}

/**
 * Returns a response without its replicas, and a secret with its newest version only, so that the
 * stored size does not grow with the workload. The replicas would be outdated at the time of a retry
 * anyway.
 */
function toStoredResponse<Response>(response: Response): Response {
  if (isMessage(response, SecretSchema)) {
    const newest = clone(SecretSchema, response);
    newest.versions = newest.versions.slice(-1);
    return newest as Response;
  }
  if (!isMessage(response, WorkloadSchema)) return response;
  if (response.status === undefined) return response;
  // A shallow copy, because a deep copy would copy every replica. The unknown fields of the status are
  // the encoded replicas of a binary call.
  const status = { ...response.status, replicas: [], omittedReplicas: 0 };
  delete status.$unknown;
  return { ...response, status } as Response;
}

/**
 * Returns the stored response of an earlier call.
 * @throws kind `invalid` when that call had another principal, another method or another body.
 */
function replayResponse<Request extends DescMessage, Response extends DescMessage>(
  record: RequestRecord,
  method: DescMethodUnary<Request, Response>,
  bodyHash: Uint8Array,
  principal: string,
): MessageShape<Response> {
  if ((record.principal || ANONYMOUS_LOOPBACK.name) !== principal) {
    throw new InvalidInputError([
      {
        field: 'request_id',
        message: 'was used by another caller within the last hour; use a new one',
      },
    ]);
  }
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

/** Hashes a request without its request id. */
function hashRequest<Desc extends DescMessage>(
  schema: Desc,
  request: MessageShape<Desc>,
  key: Uint8Array | undefined,
): Uint8Array {
  const body = Object.assign(clone(schema, request), { requestId: '' });
  const hash = key === undefined ? createHash('sha256') : createHmac('sha256', key);
  return hash.update(toBinary(schema, body)).digest();
}
