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

/** What {@link CallGate} needs. */
export interface CallGateSettings extends Pick<
  RpcServerOptions,
  'classOf' | 'principalOf' | 'loopLagMs'
> {
  readonly limits: RpcLimits;
  readonly clock: Clock;
  readonly log: Log;
}

/** A request on its way to its handler. */
export interface IncomingCall {
  readonly handler: UniversalHandler;
  readonly connection: ServerConnection | undefined;
  readonly request: AnyRequest;
  readonly response: AnyResponse;
  readonly header: Headers;
  readonly signal: AbortSignal;
  readonly control: CallControl;
}

/** A call that may begin. */
export interface AdmittedCall {
  readonly body: AsyncIterable<Uint8Array>;
  /** Wraps the answer: gives the turn back when the handler has done its work. */
  finishing(answer: AsyncIterable<Uint8Array>): AsyncIterable<Uint8Array>;
}

/** What an envelope adds to a message. */
const ENVELOPE_BYTES = 5;
/** What a request takes beside its head and body, roughly: HTTP/2 stream, signals, timers. */
const REQUEST_BYTES = 4 * 1024;

/** Streams that are refused in one turn of the event loop. A refusal takes about 0.2 ms. */
const REFUSALS_PER_TURN = 8;

/**
 * Stands between requests and handlers: everything that a client's calls may take of the process is
 * counted here.
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

  /** Takes up an RPC. `own` is the class of what the server itself adds. */
  register(method: DescMethod, own?: CallClass): void {
    const { classOf = everythingWrites } = this.settings;
    const callClass = own ?? classOf(method);
    assert(callClass !== undefined, `${method.parent.typeName}/${method.name} has no lane`);
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
   * Reads the request where it is one message, then waits for its turn.
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
        // In turns too, so that thousands of refusals for one client do not delay other calls.
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

  /** Hands on an answer as fast as it is read, and no faster. */
  pace(answer: AsyncIterable<Uint8Array>, call: IncomingCall): AsyncIterable<Uint8Array> {
    const { handler, connection } = call;
    const unread = this.unreadAnswers.hold(this.principalOf(call), () => {
      call.control.end(new ConnectError('too many answers are not read', Code.ResourceExhausted));
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
    const { lane = 'read', long = false, inTurns = false } = this.classes.get(method) ?? {};
    return { lane, long: long || method.methodKind !== 'unary', inTurns };
  }

  private principalOf({ connection, header }: IncomingCall): string {
    return this.settings.principalOf?.(connection, header) ?? connection?.id ?? 'closed connection';
  }
}

const everythingWrites: ClassOf = () => ({ lane: 'write' });

function clientStreams(method: DescMethod): boolean {
  return method.methodKind === 'client_streaming' || method.methodKind === 'bidi_streaming';
}

/** A unary call has done its work when its answer is there. */
async function* answered(
  answer: AsyncIterable<Uint8Array>,
  finish: () => void,
): AsyncIterable<Uint8Array> {
  for await (const chunk of answer) {
    finish();
    yield chunk;
  }
}

/** Waits for a turn before each message of a stream. */
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

/** A stream has its turn to begin; from then on it waits, mostly. */
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
