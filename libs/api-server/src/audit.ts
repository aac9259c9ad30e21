import type { DescMethod, DescMethodUnary, MessageShape, DescMessage } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import {
  Event_Category as Category,
  Event_Severity as Severity,
  codeName,
  namespaceOf,
  toConnectError,
  traceIdOf,
} from '@cloudless/api';
import { Throttle, assert, errorFields, type LeftOut } from '@cloudless/base';
import type { EventInit, Transaction } from '@cloudless/cluster-state';
import { Code, type HandlerContext } from '@connectrpc/connect';
import type { ApiServerDeps } from './ports.js';

/** The subject of a call. An absent field does not apply. */
export interface AuditObject {
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

type UnaryHandler<Request, Response> = (
  request: Request,
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
  private readonly acts = new WeakMap<object, Act>();
  private readonly throttle: Throttle;

  constructor(
    private readonly deps: Pick<ApiServerDeps, 'state' | 'clock' | 'log' | 'connectionOf'>,
  ) {
    this.throttle = new Throttle({ clock: deps.clock, burst: BURST, everyMs: EVERY_MS });
  }

  /** Wraps the handler of a unary call so that the call is recorded. */
  unary<Request extends DescMessage, Response extends DescMessage>(
    method: DescMethodUnary<Request, Response>,
    handler: UnaryHandler<MessageShape<Request>, MessageShape<Response>>,
  ): (request: MessageShape<Request>, context: HandlerContext) => Promise<MessageShape<Response>> {
    return async (request, context) => {
      const act = this.open(method, context, objectOf(request), requestIdOf(request));
      this.acts.set(request, act);
      try {
        const response = await handler(request, context);
        if (!act.recorded) await this.record(act, 'unchanged');
        return response;
      } catch (reason) {
        await this.failed(act, reason);
        throw reason;
      }
    };
  }

  /**
   * Wraps a streaming call so that a failure is recorded. The handler itself records the start,
   * because only the handler knows the subject.
   */
  async *stream<Item>(
    method: DescMethod,
    context: HandlerContext,
    items: AsyncIterable<Item>,
  ): AsyncGenerator<Item> {
    const act = this.open(method, context, {}, '');
    try {
      yield* items;
    } catch (reason) {
      await this.failed(act, reason);
      throw reason;
    }
  }

  /** Returns the audit entry of the call that a request or a handler context belongs to. */
  actOf(key: object): Act {
    const act = this.acts.get(key);
    assert(act !== undefined, 'a call that changes something or is privileged is recorded');
    return act;
  }

  private open(
    method: DescMethod,
    context: HandlerContext,
    object: AuditObject,
    requestId: string,
  ): Act {
    const address = this.deps.connectionOf(context)?.remoteAddress ?? '';
    const traceId = traceIdOf(context.requestHeader);
    const act = new Act(this.deps.state, {
      rpc: `${method.parent.typeName}/${method.name}`,
      address,
      traceId,
      object,
      requestId,
    });
    this.acts.set(context, act);
    return act;
  }

  /**
   * Records a failed call. A client that disconnects after the start of a recorded call is no
   * failure.
   */
  private async failed(act: Act, reason: unknown): Promise<void> {
    const { code } = toConnectError(reason);
    if (act.recorded && code === Code.Canceled) return;
    try {
      await this.record(act, codeName(code));
    } catch (failure) {
      this.deps.log.warn('refused call not recorded', {
        rpc: act.facts.rpc,
        ...errorFields(failure),
      });
    }
  }

  /** Commits a record on its own, subject to the rate limit. */
  private async record(act: Act, result: string): Promise<void> {
    const { rpc, address } = act.facts;
    const throttled = this.throttle.take(`${address} ${rpc} ${result}`);
    if (throttled.passes) await act.write(result, throttled.left);
  }
}

interface ActFacts {
  readonly rpc: string;
  readonly address: string;
  readonly traceId: string;
  readonly object: AuditObject;
  readonly requestId: string;
}

/** The audit record of one call. */
export class Act {
  /** The record is in the store. */
  recorded = false;
  private object: AuditObject;

  constructor(
    private readonly state: ApiServerDeps['state'],
    readonly facts: ActFacts,
  ) {
    this.object = facts.object;
  }

  /**
   * Commits the transaction of a call together with the audit record, which becomes the cause of
   * the other events in the transaction. Later commits of the same call contain no record.
   * @param how - `write`: also commits while the store is known to have gone back in time.
   */
  async commit(transaction: Transaction, how: 'commit' | 'write' = 'commit'): Promise<void> {
    if (!this.recorded) transaction.leadBy(this.event('ok'));
    await this.state[how](transaction);
    this.recorded = true;
  }

  /**
   * Commits the record of a privileged call before the call begins.
   * @throws when the record cannot be committed; the call must not begin then.
   */
  async begins(object: AuditObject): Promise<void> {
    this.object = { ...this.object, ...object };
    await this.write('started');
  }

  /** @param left - Suppressed records of equal calls before this one. */
  async write(result: string, left?: LeftOut): Promise<void> {
    const counted =
      left === undefined ? {} : { count: left.count + 1, firstTime: timestampFromMs(left.sinceMs) };
    await this.state.write(this.state.transaction().event({ ...this.event(result), ...counted }));
    this.recorded = true;
  }

  private event(result: string): EventInit {
    const { rpc, address, traceId, requestId } = this.facts;
    const { command, ...about } = this.object;
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
      message: `${PRINCIPAL}${from} called ${method}${describe(about)}${running}: ${result}`,
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

function describe({
  namespace,
  workload,
  nodeId,
  replicaId,
}: Omit<AuditObject, 'command'>): string {
  if (replicaId !== undefined && replicaId !== '') return ` on replica ${replicaId}`;
  if (workload !== undefined && workload !== '') return ` on ${namespace}/${workload}`;
  return nodeId === undefined || nodeId === '' ? '' : ` on node ${nodeId}`;
}

/** Reads the subject from the fields that requests use throughout the API. */
function objectOf(request: object): AuditObject {
  const field = (name: string): string => {
    const value: unknown = name in request ? request[name as keyof typeof request] : '';
    return typeof value === 'string' ? value : '';
  };
  const [workload, nodeId, replicaId] = [field('name'), field('nodeId'), field('replicaId')];
  return {
    ...(workload === ''
      ? {}
      : { namespace: namespaceOf({ namespace: field('namespace') }), workload }),
    ...(nodeId === '' ? {} : { nodeId }),
    ...(replicaId === '' ? {} : { replicaId }),
  };
}

function requestIdOf(request: object): string {
  return 'requestId' in request && typeof request.requestId === 'string' ? request.requestId : '';
}
