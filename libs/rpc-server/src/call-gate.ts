import { assert, type Clock, type Log } from '@cloudless/base';
import type { DescMethod } from '@bufbuild/protobuf';
import { ConnectError, Code } from '@connectrpc/connect';
import type { UniversalHandler } from '@connectrpc/connect/protocol';
import { Admission } from './admission.js';
import { ByteBudget } from './byte-budget.js';
import type { CallControl } from './call-limiter.js';
import type { ServerConnection } from './connection.js';
import type { AnyRequest, AnyResponse } from './http-types.js';
import type { CallClass, ClassOf } from './lanes.js';
import type { RpcLimits, RpcLoad, RpcServerOptions } from './options.js';
import { OverloadMeter } from './overload.js';
import { AnswerPacer, cut } from './pace-answer.js';
import { readAhead } from './read-ahead.js';
import { peerOf } from './peer.js';
import { StreamShares } from './stream-shares.js';
import { StreamTurns } from './stream-turns.js';

export interface CallGateSettings extends Omit<RpcServerOptions, 'limits' | 'log'> {
  readonly limits: RpcLimits;
  readonly clock: Clock;
  readonly log: Log;
}

export interface IncomingCall {
  readonly handler: UniversalHandler;
  readonly connection: ServerConnection | undefined;
  readonly request: AnyRequest;
  readonly response: AnyResponse;
  readonly header: Headers;
  readonly signal: AbortSignal;
  readonly control: CallControl;
}

export interface AdmittedCall {
  readonly body: AsyncIterable<Uint8Array>;
  /**
   * Wraps the response body, so that the call's share of the running calls ends when the handler
   * has finished (unary call) or has started (stream).
   */
  finishing(answer: AsyncIterable<Uint8Array>): AsyncIterable<Uint8Array>;
}

/** Flags and length before each message of a streaming protocol. */
const ENVELOPE_BYTES = 5;
/** Approximate memory of a request beside its head and body: HTTP/2 stream, signals, timers. */
const REQUEST_BYTES = 4 * 1024;

/** Streams refused in one iteration of the event loop. One refusal takes about 0.2 ms. */
const REFUSALS_PER_TURN = 8;

/**
 * Protects the process from its clients. Applies every limit between the arrival of a request and
 * its handler: priorities, streams for each client, memory of requests and responses, and slow
 * readers.
 */
export class CallGate {
  private readonly overload: OverloadMeter;
  private readonly admission: Admission;
  private readonly shares: StreamShares;
  private readonly turns: StreamTurns;
  private readonly refusals = new StreamTurns(REFUSALS_PER_TURN);
  private readonly waitingRequests: ByteBudget;
  private readonly unreadAnswers: ByteBudget;
  private readonly pacer: AnswerPacer;
  private readonly classes = new Map<DescMethod, CallClass>();

  constructor(private readonly settings: CallGateSettings) {
    const { clock, log, limits, loopLagMs = () => 0 } = settings;
    this.overload = new OverloadMeter(clock, loopLagMs);
    this.shares = new StreamShares(limits);
    this.turns = new StreamTurns(limits.snapshotMessagesPerTurn);
    this.waitingRequests = new ByteBudget(limits.waitingRequestBytes);
    this.unreadAnswers = new ByteBudget(limits.unreadAnswerBytes, () => this.admission.wake());
    this.pacer = new AnswerPacer({ clock, log, readerStallMs: limits.readerStallMs });
    this.admission = new Admission({
      clock,
      lanes: limits.lanes,
      runningPerPrincipal: limits.runningPerPrincipal,
      callsPerTurn: limits.callsPerTurn,
      overload: () => this.overload.level(),
      mayBegin: (principal) =>
        this.unreadAnswers.bytesOf(principal) <= limits.unreadAnswerBytesPerPrincipal,
    });
  }

  /**
   * Sets the class of an RPC. Call it once for each RPC before the server listens.
   * @param own - The class of an RPC that the server adds itself, such as health checks; default:
   *   what `classifyCall` returns.
   */
  register(method: DescMethod, own?: CallClass): void {
    const { classOf = everythingWrites } = this.settings;
    const callClass = own ?? classOf(method);
    assert(
      callClass !== undefined,
      `${method.parent.typeName}/${method.name} has no priority; return one from classifyCall`,
    );
    this.classes.set(method, callClass);
  }

  load(): Omit<RpcLoad, 'connections' | 'connectionsDropped'> {
    return {
      overload: this.overload.level(),
      lanes: this.admission.load(),
      streams: this.shares.open,
      streamsRefused: this.shares.refused,
      waitingRequestBytes: this.waitingRequests.bytes,
      unreadAnswerBytes: this.unreadAnswers.bytes,
      readersCut: this.pacer.stalled + this.unreadAnswers.cuts,
    };
  }

  /**
   * Reads the request if it is a single message, then waits until the call may start.
   * @throws ConnectError RESOURCE_EXHAUSTED when the call is refused.
   */
  async admit(call: IncomingCall): Promise<AdmittedCall> {
    const { request, response, signal, handler } = call;
    const { lane, long, inTurns } = this.classOf(handler.method);
    const principal = this.principalOf(call);
    const onClose = (end: () => void): void => void response.once('close', end);
    if (long) {
      try {
        onClose(this.shares.begin(lane, principal, peerOf(call.connection?.remoteAddress ?? '')));
      } catch (reason) {
        // Refusals are limited for each event loop iteration as well: thousands of refusals for one
        // client must not delay other calls.
        await this.refusals.take(principal, signal);
        throw reason;
      }
    }
    this.admission.check(lane, principal);
    const held = this.waitingRequests.hold(principal, () => cut(call));
    onClose(held.release);
    held.add(REQUEST_BYTES + request.rawHeaders.reduce((sum, text) => sum + text.length, 0));
    const source: AsyncIterable<Uint8Array> = {
      [Symbol.asyncIterator]: () => request.iterator({ destroyOnReturn: false }),
    };
    const body = clientStreams(handler.method)
      ? source
      : await readAhead(source, this.settings.limits.readMaxBytes + ENVELOPE_BYTES, held);
    const ended = await this.admission.admit(lane, principal, signal);
    const finish = (): void => {
      held.release();
      ended();
    };
    onClose(finish);
    const take = (): Promise<void> => this.turns.take(principal, signal);
    const made = (answer: AsyncIterable<Uint8Array>) =>
      inTurns ? takingTurns(answer, take) : answer;
    return {
      body,
      finishing: (answer) => (long ? begun(made(answer), finish) : answered(answer, finish)),
    };
  }

  /**
   * Passes a response body on at the speed of its reader, and aborts the call when the client reads
   * too slowly.
   */
  pace(answer: AsyncIterable<Uint8Array>, call: IncomingCall): AsyncIterable<Uint8Array> {
    const { handler, connection } = call;
    const unread = this.unreadAnswers.hold(this.principalOf(call), () => {
      call.control.end(
        new ConnectError(
          'too many responses are unread on the server; read them faster',
          Code.ResourceExhausted,
        ),
      );
      cut(call);
    });
    return this.pacer.pace(answer, {
      ...call,
      rpc: handler.method.name,
      connectionId: connection?.id,
      unread,
    });
  }

  private classOf(method: DescMethod): Required<CallClass> {
    const callClass = this.classes.get(method);
    return {
      lane: callClass?.lane ?? 'read',
      long: callClass?.long === true || method.methodKind !== 'unary',
      inTurns: callClass?.inTurns ?? false,
    };
  }

  private principalOf({ connection, header }: IncomingCall): string {
    return this.settings.principalOf?.(connection, header) ?? connection?.id ?? 'closed connection';
  }
}

const everythingWrites: ClassOf = () => ({ lane: 'write' });

function clientStreams(method: DescMethod): boolean {
  return method.methodKind === 'client_streaming' || method.methodKind === 'bidi_streaming';
}

/** A unary call has finished when its first response bytes exist. */
async function* answered(
  answer: AsyncIterable<Uint8Array>,
  finish: () => void,
): AsyncIterable<Uint8Array> {
  for await (const chunk of answer) {
    finish();
    yield chunk;
  }
}

/** Waits for the quota of the event loop iteration before each message of a stream. */
async function* takingTurns(
  answer: AsyncIterable<Uint8Array>,
  take: () => Promise<void>,
): AsyncIterable<Uint8Array> {
  const items = answer[Symbol.asyncIterator]();
  try {
    for (;;) {
      await take();
      const item = await items.next();
      if (item.done === true) return;
      yield item.value;
    }
  } finally {
    await items.return?.();
  }
}

/**
 * Ends the stream's share of the running calls once it has started: from then on it mostly waits.
 */
async function* begun(
  answer: AsyncIterable<Uint8Array>,
  finish: () => void,
): AsyncIterable<Uint8Array> {
  const items = answer[Symbol.asyncIterator]();
  const first = items.next();
  finish();
  try {
    for (let item = await first; item.done !== true; item = await items.next()) yield item.value;
  } finally {
    await items.return?.();
  }
}
