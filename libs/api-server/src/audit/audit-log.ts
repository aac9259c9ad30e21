import type { DescMethod, DescMethodUnary, MessageShape, DescMessage } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { Code, type HandlerContext } from '@connectrpc/connect';
import {
  Event_Category as Category,
  Event_Severity as Severity,
  formatCode,
  resolveNamespace,
  toConnectError,
  parseTraceId,
} from '@cloudless/api';
import { Throttle, errorFields, type SuppressedEvents } from '@cloudless/base';
import type { EventInit, Transaction } from '@cloudless/cluster-state';
import type { ApiServerDeps } from '../ports.js';

/** The subject of a call. An absent field does not apply. */
export interface AuditSubject {
  readonly namespace?: string;
  readonly workload?: string;
  readonly nodeId?: string;
  readonly replicaId?: string;
  /**
   * The words of a command. The audit record contains only the first word and the number of the
   * others, because arguments may contain secrets.
   */
  readonly command?: readonly string[];
}

/** A handler of a unary call. It commits its change, or records its start, through the entry. */
type UnaryHandler<Request, Response> = (
  request: Request,
  entry: AuditEntry,
  context: HandlerContext,
) => Promise<Response> | Response;

/**
 * Calls of one client to one method with the same failed or unchanged result that are recorded one
 * by one. Later ones are merged, at most one record every {@link EVERY_MS}.
 */
const BURST = 10;
const EVERY_MS = 10_000;

/**
 * Writes the audit records of calls. The record of a call that changes the state is part of the
 * transaction of the change. The record of a privileged call that changes no state, such as an
 * exec, is committed before the call begins. The record of a call that failed or changed nothing is
 * committed after the call. Every record is committed before the reply.
 */
export class AuditLog {
  private readonly throttle: Throttle;

  constructor(
    private readonly deps: Pick<ApiServerDeps, 'state' | 'clock' | 'log' | 'getConnection'>,
  ) {
    this.throttle = new Throttle({ clock: deps.clock, burst: BURST, everyMs: EVERY_MS });
  }

  /** Wraps the handler of a unary call so that the call is recorded. */
  wrapUnary<Request extends DescMessage, Response extends DescMessage>(
    method: DescMethodUnary<Request, Response>,
    handler: UnaryHandler<MessageShape<Request>, MessageShape<Response>>,
  ): (request: MessageShape<Request>, context: HandlerContext) => Promise<MessageShape<Response>> {
    return async (request, context) => {
      const entry = this.createEntry(method, context, toSubject(request), getRequestId(request));
      try {
        const response = await handler(request, entry, context);
        if (!entry.recorded) await this.recordResult(entry, 'unchanged');
        return response;
      } catch (reason) {
        await this.recordFailure(entry, reason);
        throw reason;
      }
    };
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
  ): AuditEntry {
    const address = this.deps.getConnection(context)?.remoteAddress ?? '';
    const traceId = parseTraceId(context.requestHeader);
    const entry = new AuditEntry(this.deps.state, {
      rpc: `${method.parent.typeName}/${method.name}`,
      address,
      traceId,
      subject,
      requestId,
    });
    return entry;
  }

  /**
   * Records a failed call. A client that disconnects after the start of a recorded call is no
   * failure.
   */
  private async recordFailure(entry: AuditEntry, reason: unknown): Promise<void> {
    const { code } = toConnectError(reason);
    if (entry.recorded && code === Code.Canceled) return;
    try {
      await this.recordResult(entry, formatCode(code));
    } catch (failure) {
      this.deps.log.warn('refused call not recorded', {
        rpc: entry.facts.rpc,
        ...errorFields(failure),
      });
    }
  }

  /** Commits a record on its own, subject to the rate limit. */
  private async recordResult(entry: AuditEntry, result: string): Promise<void> {
    const { rpc, address } = entry.facts;
    const throttled = this.throttle.take(`${address} ${rpc} ${result}`);
    if (throttled.passes) await entry.write(result, throttled.left);
  }
}

interface AuditFacts {
  readonly rpc: string;
  readonly address: string;
  readonly traceId: string;
  readonly subject: AuditSubject;
  readonly requestId: string;
}

/** The audit record of one call. */
export class AuditEntry {
  /** The record is in the store. */
  recorded = false;
  private subject: AuditSubject;

  constructor(
    private readonly state: ApiServerDeps['state'],
    readonly facts: AuditFacts,
  ) {
    this.subject = facts.subject;
  }

  /**
   * Commits the transaction of a call together with the audit record, which becomes the cause of
   * the other events in the transaction. Later commits of the same call contain no record.
   * @param how - `commitObserved`: also commits while the store is known to have gone back in time.
   */
  async commit(
    transaction: Transaction,
    how: 'commit' | 'commitObserved' = 'commit',
  ): Promise<void> {
    if (!this.recorded) transaction.prependCause(this.createEvent('ok'));
    await this.state[how](transaction);
    this.recorded = true;
  }

  /**
   * Commits the record of a privileged call before the call begins.
   * @throws when the record cannot be committed; the call must not begin then.
   */
  async recordStart(object: AuditSubject): Promise<void> {
    this.subject = { ...this.subject, ...object };
    await this.write('started');
  }

  /** @param left - Suppressed records of equal calls before this one. */
  async write(result: string, left?: SuppressedEvents): Promise<void> {
    const counted =
      left === undefined ? {} : { count: left.count + 1, firstTime: timestampFromMs(left.sinceMs) };
    await this.state.commitObserved(
      this.state.transaction().event({ ...this.createEvent(result), ...counted }),
    );
    this.recorded = true;
  }

  private createEvent(result: string): EventInit {
    const { rpc, address, traceId, requestId } = this.facts;
    const { command, ...about } = this.subject;
    const [program = '', ...rest] = command ?? [];
    const good = result === 'ok' || result === 'started' || result === 'unchanged';
    const method = rpc.slice(rpc.indexOf('/') + 1);
    const from = address === '' ? '' : ` from ${address}`;
    const running =
      program === ''
        ? ''
        : `, running ${program} with ${rest.length} ${rest.length === 1 ? 'argument' : 'arguments'}`;
    return {
      severity: good ? Severity.INFO : Severity.WARNING,
      category: Category.AUDIT,
      reason: method,
      message: `${PRINCIPAL}${from} called ${method}${describeSubject(about)}${running}: ${result}`,
      ...about,
      requestId,
      audit: {
        principal: PRINCIPAL,
        address,
        rpc,
        result,
        program,
        argumentCount: rest.length,
        traceId,
      },
    };
  }
}

/** The cluster has no identities yet. */
const PRINCIPAL = 'anonymous';

function describeSubject({
  namespace,
  workload,
  nodeId,
  replicaId,
}: Omit<AuditSubject, 'command'>): string {
  if (replicaId !== undefined && replicaId !== '') return ` on replica ${replicaId}`;
  if (workload !== undefined && workload !== '') return ` on ${namespace}/${workload}`;
  return nodeId === undefined || nodeId === '' ? '' : ` on node ${nodeId}`;
}

/** Reads the subject from the fields that requests use throughout the API. */
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
