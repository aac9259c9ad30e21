import type { DescMethod } from '@bufbuild/protobuf';
import type { UniversalHandler } from '@connectrpc/connect/protocol';
import { assert, type Clock, type Log } from '@cloudless/base';
import { toLimitedClient, type Caller } from '../transport/call-authorization.js';
import type { CallCanceller } from '../transport/call-lifetimes.js';
import type { ServerConnection } from '../transport/connection.js';
import type { AnyRequest, AnyResponse } from '../transport/http-types.js';
import { toRequestBody } from '../transport/request-body.js';
import type { RpcLimits, RpcLoad, RpcServerOptions } from '../options.js';
import type { CallClass, ClassifyCall } from './call-priority.js';
import { ByteBudget } from './byte-budget.js';
import { CallAdmission } from './call-admission.js';
import { OverloadDetector } from './overload-detector.js';
import { ResponsePacer, resetCall } from './response-pacing.js';
import { readAhead } from './read-ahead.js';
import { toPeerKey } from './peer-key.js';
import { StreamLimiter } from './stream-limiter.js';
import { EventLoopQuota } from './event-loop-quota.js';
import { createError } from './retryable-error.js';

export interface OverloadProtectionSettings extends Pick<
  RpcServerOptions,
  'classifyCall' | 'getPrincipal' | 'getLoopLagMs'
> {
  readonly limits: RpcLimits;
  readonly clock: Clock;
  readonly log: Log;
}

/** One request of an RPC, before the call is admitted. */
export interface IncomingCall {
  readonly handler: UniversalHandler;
  /** Undefined when the connection closed while the request came in. */
  readonly connection: ServerConnection | undefined;
  readonly request: AnyRequest;
  readonly response: AnyResponse;
  readonly header: Headers;
  /** Aborted when the client has gone or its deadline has passed. */
  readonly signal: AbortSignal;
  /** Ends the call with an error that the client receives. */
  readonly control: CallCanceller;
  /** Undefined when the server has no `authorize`, and for a call that is refused. */
  readonly caller?: Caller | undefined;
}

/** A call that may start. */
export interface AdmittedCall {
  /** Body of the request. */
  readonly body: AsyncIterable<Uint8Array>;
  /**
   * Wraps the response body. The call no longer counts as running once its handler has finished
   * (unary call) or has started (stream).
   */
  withFinish(responseBody: AsyncIterable<Uint8Array>): AsyncIterable<Uint8Array>;
  /** Lets the call no longer count as running. A second call has no effect. */
  finish(): void;
  /**
   * Resolves when the next large message of the request may be parsed. Never rejects. Undefined when
   * no message has to wait.
   */
  readonly waitForLargeMessage?: (() => Promise<void>) | undefined;
}

/** Bytes of flags and length before each message of a streaming protocol. */
const ENVELOPE_BYTES = 5;
/** Approximate memory of a request beside its head and body: HTTP/2 stream, signals, timers. */
const REQUEST_BYTES = 4 * 1024;

/** Most streams refused in one iteration of the event loop. One refusal takes about 0.2 ms. */
const REFUSALS_PER_ITERATION = 8;

/**
 * Protects the process from its clients. Applies all limits of a call: priorities, streams of each
 * client, memory of requests and responses, and the slow-reader timeout.
 */
export class OverloadProtection {
  private readonly overloadDetector: OverloadDetector;
  private readonly admission: CallAdmission;
  private readonly streamLimiter: StreamLimiter;
  private readonly messageQuota: EventLoopQuota;
  private readonly largeMessageQuota: EventLoopQuota;
  private readonly refusalQuota = new EventLoopQuota(REFUSALS_PER_ITERATION);
  private readonly waitingRequests: ByteBudget;
  private readonly unreadResponses: ByteBudget;
  private readonly pacer: ResponsePacer;
  private readonly classes = new Map<DescMethod, CallClass>();

  constructor(private readonly settings: OverloadProtectionSettings) {
    const { clock, log, limits, getLoopLagMs = () => 0 } = settings;
    this.overloadDetector = new OverloadDetector(clock, getLoopLagMs);
    this.streamLimiter = new StreamLimiter(limits);
    this.messageQuota = new EventLoopQuota(limits.snapshotMessagesPerIteration);
    this.largeMessageQuota = new EventLoopQuota(limits.largeMessagesPerIteration);
    this.waitingRequests = new ByteBudget(limits.waitingRequestBytes);
    this.unreadResponses = new ByteBudget(limits.unreadResponseBytes, () =>
      this.admission.recheck(),
    );
    this.pacer = new ResponsePacer({ clock, log, slowReaderTimeoutMs: limits.slowReaderTimeoutMs });
    this.admission = new CallAdmission({
      clock,
      priorities: limits.priorities,
      runningPerPrincipal: limits.runningPerPrincipal,
      callsPerIteration: limits.callsPerIteration,
      getOverload: () => this.overloadDetector.getLevel(),
      canStart: (principal) =>
        this.unreadResponses.getBytes(principal) <= limits.unreadResponseBytesPerPrincipal,
    });
  }

  /**
   * Sets the class of an RPC. Must run once for each RPC before the server listens.
   * @param ownClass - Class of an RPC that the server itself adds, such as a health check. Default:
   *   the result of `classifyCall`.
   * @throws Error when `classifyCall` returns undefined.
   */
  register(method: DescMethod, ownClass?: CallClass): void {
    const { classifyCall = classifyAsWrite } = this.settings;
    const callClass = ownClass ?? classifyCall(method);
    assert(
      callClass !== undefined,
      `${method.parent.typeName}/${method.name} has no priority; return one from classifyCall`,
    );
    this.classes.set(method, callClass);
  }

  /** Returns the current load, and refusals since the start. */
  getLoad(): Omit<RpcLoad, 'connections' | 'connectionsDropped'> {
    return {
      overload: this.overloadDetector.getLevel(),
      priorities: this.admission.getLoad(),
      streams: this.streamLimiter.openStreams,
      streamsRefused: this.streamLimiter.refusedStreams,
      waitingRequestBytes: this.waitingRequests.bytes,
      unreadResponseBytes: this.unreadResponses.bytes,
      slowReadersAborted: this.pacer.slowReaders + this.unreadResponses.aborted,
    };
  }

  /**
   * Waits until a call of a client without the right to call may be refused: refusals of one client
   * must not delay the calls of others.
   */
  waitForRefusal(call: IncomingCall): Promise<void> {
    return this.refusalQuota.acquire(this.getPrincipal(call), call.signal);
  }

  /**
   * Reads the request if it is a single message, then waits until the call may start.
   * @throws ConnectError RESOURCE_EXHAUSTED when the call is refused.
   */
  async admit(call: IncomingCall): Promise<AdmittedCall> {
    const { request, response, signal, handler } = call;
    const { priority, longRunning, interleaved, readsInTurns, maxRequestBytes } = this.classify(
      handler.method,
    );
    const principal = this.getPrincipal(call);
    const onClose = (action: () => void): void => void response.once('close', action);
    if (longRunning) {
      try {
        onClose(
          this.streamLimiter.acquire(
            priority,
            principal,
            toPeerKey(call.caller?.address ?? call.connection?.remoteAddress ?? ''),
          ),
        );
      } catch (reason) {
        // refusals have a quota as well: thousands of refusals of one client must not delay other
        // calls
        await this.refusalQuota.acquire(principal, signal);
        throw reason;
      }
    }
    this.admission.refuseIfOverloaded(priority, principal);
    const requestBytes = this.waitingRequests.track(principal, () => resetCall(call));
    onClose(requestBytes.release);
    requestBytes.add(
      REQUEST_BYTES + request.rawHeaders.reduce((sum, text) => sum + text.length, 0),
    );
    const source = toRequestBody(request);
    const body = isClientStreaming(handler.method)
      ? source
      : await readAhead(source, maxRequestBytes + ENVELOPE_BYTES, requestBytes, () =>
          this.refuseLarger(handler.method, maxRequestBytes),
        );
    const endCall = await this.admission.admit(priority, principal, signal);
    const finish = (): void => {
      requestBytes.release();
      endCall();
    };
    onClose(finish);
    const acquireQuota = (): Promise<void> => this.messageQuota.acquire(principal, signal);
    const applyQuota = (responseBody: AsyncIterable<Uint8Array>) =>
      interleaved ? withMessageQuota(responseBody, acquireQuota) : responseBody;
    return {
      body,
      finish,
      waitForLargeMessage: readsInTurns
        ? () => this.largeMessageQuota.acquire(principal, signal)
        : undefined,
      withFinish: (responseBody) =>
        longRunning
          ? finishAtStart(applyQuota(responseBody), finish)
          : finishAtResponse(responseBody, finish),
    };
  }

  /**
   * Passes a response body on at the speed of its reader. Aborts the call when the client reads too
   * slowly, or when unread responses exceed their memory budget.
   */
  paceResponse(body: AsyncIterable<Uint8Array>, call: IncomingCall): AsyncIterable<Uint8Array> {
    const { handler, connection } = call;
    // Each message of an interleaved stream waits for its quota.
    const { interleaved } = this.classify(handler.method);
    const unread = this.unreadResponses.track(this.getPrincipal(call), () => {
      call.control.cancel(
        createError('SLOW_READER', 'too many responses are unread on the server; read them faster'),
      );
      resetCall(call);
    });
    return this.pacer.pace(body, {
      ...call,
      rpc: handler.method.name,
      connectionId: connection?.id,
      unread,
      directWrites: interleaved ? undefined : call.control.directWrites,
    });
  }

  /** Refuses a request beyond the limit of its RPC. The limit of the server is checked elsewhere. */
  private refuseLarger({ name }: DescMethod, maxRequestBytes: number): void {
    if (maxRequestBytes >= this.settings.limits.readMaxBytes) return;
    throw createError(
      'REQUEST_TOO_LARGE',
      `the request is larger than the ${maxRequestBytes} bytes that ${name} accepts`,
    );
  }

  private classify(method: DescMethod): Required<CallClass> {
    const callClass = this.classes.get(method);
    return {
      priority: callClass?.priority ?? 'read',
      longRunning: callClass?.longRunning === true || method.methodKind !== 'unary',
      interleaved: callClass?.interleaved ?? false,
      readsInTurns: callClass?.readsInTurns ?? false,
      maxRequestBytes: callClass?.maxRequestBytes ?? this.settings.limits.readMaxBytes,
    };
  }

  private getPrincipal({ caller, connection, header }: IncomingCall): string {
    return this.settings.getPrincipal?.(connection, header) ?? toLimitedClient(caller, connection);
  }
}

const classifyAsWrite: ClassifyCall = () => ({ priority: 'write' });

function isClientStreaming(method: DescMethod): boolean {
  return method.methodKind === 'client_streaming' || method.methodKind === 'bidi_streaming';
}

/** Runs `finish` when the first bytes of the response exist: the handler has then finished. */
async function* finishAtResponse(
  body: AsyncIterable<Uint8Array>,
  finish: () => void,
): AsyncIterable<Uint8Array> {
  for await (const chunk of body) {
    finish();
    yield chunk;
  }
}

/** Waits for the quota of the event loop iteration before each message of a stream. */
async function* withMessageQuota(
  body: AsyncIterable<Uint8Array>,
  acquireQuota: () => Promise<void>,
): AsyncIterable<Uint8Array> {
  const items = body[Symbol.asyncIterator]();
  try {
    for (;;) {
      await acquireQuota();
      const item = await items.next();
      if (item.done === true) return;
      yield item.value;
    }
  } finally {
    await items.return?.();
  }
}

/**
 * Runs `finish` once the handler of a stream has started: a stream mostly waits from then on.
 */
async function* finishAtStart(
  body: AsyncIterable<Uint8Array>,
  finish: () => void,
): AsyncIterable<Uint8Array> {
  const items = body[Symbol.asyncIterator]();
  const first = items.next();
  finish();
  try {
    for (let item = await first; item.done !== true; item = await items.next()) yield item.value;
  } finally {
    await items.return?.();
  }
}
