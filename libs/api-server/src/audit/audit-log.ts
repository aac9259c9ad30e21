import { createHash } from 'node:crypto';
import { isMessage } from '@bufbuild/protobuf';
import type { DescMethod, DescMethodUnary, MessageShape, DescMessage } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { Code, type HandlerContext } from '@connectrpc/connect';
import {
  CreatePlanRequestSchema,
  PolicyOverrideSchema,
  formatCode,
  readErrorDetails,
  resolveNamespace,
  toConnectError,
  parseTraceId,
  toReasonEnum,
} from '@cloudless/api';
import {
  CloudlessError,
  Throttle,
  definedFields,
  errorFields,
  errorKindOf,
  errorMessageOf,
  hasErrorReason,
  type ErrorReason,
  type SuppressedEvents,
} from '@cloudless/base';
import type { EventInit, Transaction } from '@cloudless/cluster-state';
import type { CallAccess } from '../access/call-access.js';
import type { ApiCaller } from '../access/caller.js';
import { getOverrideOfChange } from '../policy/policy-override.js';
import type { ApiServerDeps } from '../ports.js';
import { RefusedCallError } from '../access/refusal.js';
import { createAuditEvent, type AuditFacts, type AuditSubject } from './audit-event.js';

/**
 * A handler of a unary call. The handler commits its change by `entry.commit`, or records the start
 * of a privileged call by `entry.recordStart`.
 */
type UnaryHandler<Request, Response> = (
  request: Request,
  entry: AuditEntry,
  context: HandlerContext,
) => Promise<Response> | Response;

/**
 * Calls of one principal from one address to one method with the same result (an error code, or
 * `unchanged`) that get a record each. Later calls are merged into at most one record every
 * {@link MERGE_MS}, so that a client in a retry loop does not fill the store.
 */
const BURST = 10;
const MERGE_MS = 10_000;

/**
 * Writes the audit records of calls. The record of a call that changes the state is part of the
 * transaction of the change. The record of a privileged call that changes no state, such as an
 * exec, is committed before the call begins, and that of a call that returns values of secrets before
 * the first value. The record of a call that failed or changed nothing is
 * committed after the call. Every record is committed before the reply.
 */
export class AuditLog {
  private readonly throttle: Throttle;

  constructor(
    private readonly deps: Pick<ApiServerDeps, 'state' | 'clock' | 'log' | 'getConnection'>,
    private readonly access: CallAccess,
  ) {
    this.throttle = new Throttle({ clock: deps.clock, burst: BURST, everyMs: MERGE_MS });
  }

  /**
   * Wraps the handler of a unary call so that the call is recorded.
   * @param describeSubject - Returns the objects of the call. Default: by the names of fields.
   */
  wrapUnary<Request extends DescMessage, Response extends DescMessage>(
    method: DescMethodUnary<Request, Response>,
    handler: UnaryHandler<MessageShape<Request>, MessageShape<Response>>,
    describeSubject: (request: MessageShape<Request>) => AuditSubject = toSubject,
  ): (request: MessageShape<Request>, context: HandlerContext) => Promise<MessageShape<Response>> {
    return async (request, context) => {
      const entry = this.createEntry(
        method,
        context,
        describeSubject(request),
        getRequestId(request),
        getOverrideReason(request),
      );
      try {
        const response = await handler(request, entry, context);
        if (!entry.recorded) await this.recordResult(entry, 'unchanged', { cause: entry.cause });
        return response;
      } catch (reason) {
        await this.recordFailure(entry, reason);
        throw reason;
      }
    };
  }

  /**
   * Wraps the handler of a read so that a refusal is recorded: a caller without the role, or with a
   * credential that does not permit the call. Other results have no record.
   */
  wrapRead<Request extends DescMessage, Response extends DescMessage>(
    method: DescMethodUnary<Request, Response>,
    handler: (
      request: MessageShape<Request>,
      context: HandlerContext,
    ) => Promise<MessageShape<Response>> | MessageShape<Response>,
    describeSubject: (request: MessageShape<Request>) => AuditSubject,
  ): (request: MessageShape<Request>, context: HandlerContext) => Promise<MessageShape<Response>> {
    return async (request, context) => {
      try {
        return await handler(request, context);
      } catch (reason) {
        if (errorKindOf(reason) === 'denied')
          await this.recordFailure(
            this.createEntry(method, context, describeSubject(request), ''),
            reason,
          );
        throw reason;
      }
    };
  }

  /**
   * Records a call that returns values, before the first value. Calls that follow each other too fast
   * are merged, see {@link BURST}; calls about other secrets, versions, replicas or routes are not.
   * @throws when the record cannot be committed; no value must be returned then.
   */
  async recordValues(entry: AuditEntry): Promise<void> {
    const { rpc, principal, address } = entry.facts;
    const throttled = this.throttle.take(
      `${principal} ${address} ${rpc} ok ${entry.describeValues()}`,
    );
    if (throttled.passes) await entry.writeBeforeCall('ok', throttled);
    // Earlier records of the same values stand for a merged call, and a later one counts it: the call
    // must not be recorded as one without a change.
    entry.recorded = true;
  }

  /**
   * Wraps a streaming call so that a failure is recorded. The handler itself records the start,
   * because only the handler knows the subject.
   */
  async *wrapStream<Item>(
    method: DescMethod,
    context: HandlerContext,
    handler: (entry: AuditEntry) => AsyncIterable<Item>,
  ): AsyncGenerator<Item> {
    const entry = this.createEntry(method, context, {}, '');
    try {
      yield* handler(entry);
    } catch (reason) {
      await this.recordFailure(entry, reason);
      throw reason;
    }
  }

  private createEntry(
    method: DescMethod,
    context: HandlerContext,
    subject: AuditSubject,
    requestId: string,
    overrideReason = '',
  ): AuditEntry {
    const traceId = parseTraceId(context.requestHeader);
    const caller = this.access.getCaller(context);
    const address = caller.address ?? this.deps.getConnection(context)?.remoteAddress ?? '';
    const { principal, credential } = caller;
    return new AuditEntry(this.deps.state, caller, {
      rpc: `${method.parent.typeName}/${method.name}`,
      address,
      traceId,
      principal: principal.name,
      credentialId: credential?.kind === 'user' ? credential.id : '',
      subject,
      requestId,
      overrideReason,
    });
  }

  /**
   * Records a failed call. A client that disconnects after the start was recorded is no failure. A
   * call that failed because this coordinator no longer leads has no record: only the leader writes
   * records, and the client asks the leader again. An error of the store is logged, so that the
   * client receives the error of its call.
   */
  private async recordFailure(entry: AuditEntry, reason: unknown): Promise<void> {
    const error = toConnectError(reason);
    if (entry.recorded && error.code === Code.Canceled) return;
    if (hasErrorReason(reason, 'LEADERSHIP_LOST')) return;
    try {
      const { reason: errorReason } = readErrorDetails(error);
      const cause = reason instanceof RefusedCallError ? reason.refusalCause : undefined;
      await this.recordResult(entry, formatCode(error.code), { errorReason, cause });
    } catch (failure) {
      this.deps.log.warn('refused call not recorded', {
        rpc: entry.facts.rpc,
        ...errorFields(failure),
      });
    }
  }

  /** Commits a record in a transaction of its own, unless the rate limit suppresses the record. */
  private async recordResult(
    entry: AuditEntry,
    result: string,
    details: Pick<AuditDetails, 'errorReason' | 'cause'> = {},
  ): Promise<void> {
    const { rpc, principal } = entry.facts;
    // Clients without an identity can have as many addresses as they like.
    const address = principal === 'unauthenticated' ? '' : entry.facts.address;
    const throttled = this.throttle.take(
      `${principal} ${address} ${rpc} ${result} ${details.errorReason ?? ''} ${entry.describeRequest(details.cause)}`,
    );
    if (throttled.passes) await entry.write(result, { ...throttled, ...details });
  }
}

interface AuditDetails {
  readonly suppressed?: SuppressedEvents | undefined;
  readonly errorReason?: ErrorReason | undefined;
  /** Why the credentials in the request were refused. */
  readonly cause?: string | undefined;
}

/** The audit record of one call. */
export class AuditEntry {
  /** True once a record of the call is in the store, or the call is merged into a later record. */
  recorded = false;
  /** Why a token was not valid, in a call that does not fail for this reason. */
  cause: string | undefined;
  private subject: AuditSubject;

  constructor(
    private readonly state: ApiServerDeps['state'],
    /** The client of the call. */
    readonly caller: ApiCaller,
    readonly facts: AuditFacts,
  ) {
    this.subject = facts.subject;
  }

  /**
   * Commits the transaction of a call together with the audit record, which becomes the cause of
   * the other events in the transaction. Later commits of the same call contain no audit record.
   * @param method - `commitObserved` also commits while the state is restored and not yet accepted.
   */
  async commit(
    transaction: Transaction,
    method: 'commit' | 'commitObserved' = 'commit',
  ): Promise<void> {
    if (!this.recorded) transaction.prependCause(this.createEvent('ok'));
    await this.state[method](transaction);
    this.recorded = true;
  }

  /** Names the object of the call in the record, when only the handler knows the object. */
  nameObject(object: string): void {
    this.describe({ object });
  }

  /** Adds what only the handler knows about the objects of the call. */
  describe(subject: AuditSubject): void {
    this.subject = { ...this.subject, ...subject };
  }

  /** Returns what tells calls that return values apart when records are merged. */
  describeValues(): string {
    const { secrets = [], secretVersions = [], replicaId = '', object = '' } = this.subject;
    return [
      ...secrets.map((key, index) => `${key}@${secretVersions[index] ?? ''}`),
      replicaId,
      object,
    ].join(' ');
  }

  /**
   * Returns what tells other calls apart when records are merged. Of a call about secrets, only what
   * the caller has sent: a commit takes time, so a caller would learn from the time of the answer
   * whether a secret exists, and why a token was refused. The names are hashed into a few groups,
   * because a caller may send any name.
   */
  describeRequest(cause = ''): string {
    const { secrets = [] } = this.subject;
    return secrets.length === 0 ? cause : String(toGroup(secrets.join(' ')));
  }

  /**
   * Commits the record of a privileged call before the call begins.
   * @param subject - Fields that replace those read from the request.
   * @throws when the record cannot be committed; the call must not begin then.
   */
  async recordStart(subject: AuditSubject): Promise<void> {
    this.describe(subject);
    await this.writeBeforeCall('started');
  }

  /**
   * Commits the record that a call needs before the call begins. Parameters of {@link write}.
   * @throws kind `exhausted` when the store has no space for the record; the message says that the
   *   call is refused for this reason.
   */
  async writeBeforeCall(result: string, details: AuditDetails = {}): Promise<void> {
    try {
      await this.write(result, details);
    } catch (reason) {
      if (!hasErrorReason(reason, 'STORE_FULL')) throw reason;
      const { rpc } = this.facts;
      throw new CloudlessError(
        'STORE_FULL',
        `${rpc.slice(rpc.indexOf('/') + 1)} is refused: nobody may make this call without an audit record, and the state store has no space for the record: ${errorMessageOf(reason)}`,
        { cause: reason },
      );
    }
  }

  /**
   * Commits a record of the call.
   * @param result - `ok`, `started`, `unchanged`, or the error code: `not_found`.
   * @param details - The reason of the error, and earlier equal calls without a record, which this
   *   record counts too.
   */
  async write(result: string, details: AuditDetails = {}): Promise<void> {
    const { suppressed, errorReason, cause } = details;
    const counted =
      suppressed === undefined
        ? {}
        : { count: suppressed.count + 1, firstTime: timestampFromMs(suppressed.sinceMs) };
    await this.state.commitObserved(
      this.state.transaction().event({
        ...this.createEvent(result, cause),
        ...(errorReason === undefined ? {} : { errorReason: toReasonEnum(errorReason) }),
        ...counted,
      }),
    );
    this.recorded = true;
  }

  private createEvent(result: string, cause?: string): EventInit {
    const facts = { ...this.facts, ...definedFields({ cause }) };
    return createAuditEvent({ ...facts, subject: this.subject, result });
  }
}

/** Groups into which names of secrets are hashed when records are merged. */
const NAME_GROUPS = 64;

function toGroup(text: string): number {
  return createHash('sha256').update(text).digest().readUInt16BE() % NAME_GROUPS;
}

/** Reads the subject from the fields `namespace`, `name`, `nodeId` and `replicaId` of a request. */
function toSubject(request: object): AuditSubject {
  const readField = (name: string): string => {
    const value: unknown = name in request ? request[name as keyof typeof request] : '';
    return typeof value === 'string' ? value : '';
  };
  const [workload, nodeId, replicaId] = [
    readField('name'),
    readField('nodeId'),
    readField('replicaId'),
  ];
  return {
    ...(workload === ''
      ? {}
      : { namespace: resolveNamespace({ namespace: readField('namespace') }), workload }),
    ...(nodeId === '' ? {} : { nodeId }),
    ...(replicaId === '' ? {} : { replicaId }),
  };
}

function getRequestId(request: object): string {
  return 'requestId' in request && typeof request.requestId === 'string' ? request.requestId : '';
}

/**
 * Returns the reason with which a request, or the first such change of a plan, overrides policies.
 * Empty when there is none.
 */
function getOverrideReason(request: object): string {
  if (isMessage(request, CreatePlanRequestSchema))
    return request.changes.map(getOverrideOfChange).find((reason) => reason !== undefined) ?? '';
  if (!('policyOverride' in request)) return '';
  return isMessage(request.policyOverride, PolicyOverrideSchema)
    ? request.policyOverride.reason
    : '';
}
