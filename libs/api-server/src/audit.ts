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

/** What a call is about; absent: not of this kind. */
export interface AuditObject {
  readonly namespace?: string;
  readonly workload?: string;
  readonly nodeId?: string;
  readonly replicaId?: string;
  /**
   * The words of a command. Only the first is kept, and how many follow: arguments may hold
   * secrets.
   */
  readonly command?: readonly string[];
}

/** A handler of a call that is recorded. */
type UnaryHandler<Request, Response> = (
  request: Request,
  context: HandlerContext,
) => Promise<Response> | Response;

/**
 * One caller may fail so many times in a row at one method, or change nothing, before events of it
 * are put together.
 */
const BURST = 10;
const EVERY_MS = 10_000;

/**
 * Who asked for what. A call that changes the state is recorded in the transaction that does it; a
 * privileged one that changes nothing here, as an exec, before it begins; one that was refused, or
 * found nothing to do, after that. All are flushed before the answer.
 */
export class AuditLog {
  private readonly acts = new WeakMap<object, Act>();
  private readonly throttle: Throttle;

  constructor(
    private readonly deps: Pick<ApiServerDeps, 'state' | 'clock' | 'log' | 'connectionOf'>,
  ) {
    this.throttle = new Throttle({ clock: deps.clock, burst: BURST, everyMs: EVERY_MS });
  }

  /** A unary call with its record. */
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
   * A streaming call with its record; the handler says what it is about before it begins anything.
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

  /** The record of the call that a request or context belongs to. */
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

  /** That the caller of what had begun went away is no refusal. */
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

  /** By itself, and not more often than the limit. */
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

/** The record of one call. */
export class Act {
  /** Its event is in the store. */
  recorded = false;
  private object: AuditObject;

  constructor(
    private readonly state: ApiServerDeps['state'],
    readonly facts: ActFacts,
  ) {
    this.object = facts.object;
  }

  /**
   * Commits what the call does, with its event as the cause of those in the transaction. The event
   * is written once.
   * @param how - `write`: also while the store is known to have gone back in time.
   */
  async commit(transaction: Transaction, how: 'commit' | 'write' = 'commit'): Promise<void> {
    if (!this.recorded) transaction.leadBy(this.event('ok'));
    await this.state[how](transaction);
    this.recorded = true;
  }

  /**
   * Records a privileged call before anything of it begins. @throws when it cannot be recorded:
   * then it must not begin.
   */
  async begins(object: AuditObject): Promise<void> {
    this.object = { ...this.object, ...object };
    await this.write('started');
  }

  /** @param left - Events like this one that were left out before it. */
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

/** There are no identities yet. */
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

/** What a request names, by the names that the API uses throughout. */
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
