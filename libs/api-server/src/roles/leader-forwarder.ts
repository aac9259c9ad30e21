import { MethodOptions_IdempotencyLevel as Idempotency } from '@bufbuild/protobuf/wkt';
import type { DescMethod, DescMethodStreaming, DescMethodUnary } from '@bufbuild/protobuf';
import type { HandlerContext, Transport } from '@connectrpc/connect';
import { errorFields, type Clock, type CloudlessError, type Log } from '@cloudless/base';
import { copyResponseHeaders, toForwardedError } from './forwarded-response.js';
import { createForwardingHeaders, type ForwardedClient } from './forwarding-headers.js';
import { ChangeSignal, type KnownLeader, type LeaderDirectory } from './leader-directory.js';
import {
  classifyFailure,
  createInterruptedError,
  createUnknownOutcomeError,
  isAnswer,
} from './role-errors.js';

/** What a coordinator needs to forward calls. */
export interface LeaderForwarderDeps {
  readonly clock: Clock;
  readonly log: Log;
  readonly leaders: LeaderDirectory;
  /** Id of this coordinator. */
  readonly coordinatorId: string;
  /**
   * Returns a transport over an open connection to the leader, with the certificate of this
   * coordinator.
   * @throws when the leader is not reached or not trusted: nothing was sent.
   */
  readonly connect: (leader: KnownLeader, signal: AbortSignal) => Promise<Transport>;
  /**
   * Returns what the leader needs to authenticate the client of a call itself. Undefined in a
   * cluster without TLS.
   */
  readonly getClient: (context: HandlerContext) => Omit<ForwardedClient, 'forwardedBy'> | undefined;
}

/**
 * Time for which a call is held until a leader is reached, milliseconds: longer than an election
 * after a crash, so that a change of the leader delays calls and fails none of them.
 */
export const CALL_HOLD_MS = 5_000;
/** Delay between two attempts to reach a leader that does not answer, milliseconds. */
const RETRY_MS = 50;
/** Time after the end of a leadership for which its coordinator may complete calls, milliseconds. */
const LATE_ANSWER_MS = 1_000;

/** Options of one forwarded call. */
export interface ForwardOptions {
  /** Time for which the call is held, milliseconds. Default: {@link CALL_HOLD_MS}. */
  readonly holdMs?: number;
  /** Creates the error of a call that reached no leader. */
  readonly createNoLeaderError: () => CloudlessError;
}

/** Forwards calls to the leader, over one hop. */
export class LeaderForwarder {
  private readonly changes = new ChangeSignal();
  private readonly unsubscribe: () => void;

  constructor(private readonly deps: LeaderForwarderDeps) {
    this.unsubscribe = deps.leaders.onChange(() => this.changes.notify());
  }

  close(): void {
    this.unsubscribe();
    this.changes.notify();
  }

  /** Lets the calls that wait for a leader look again. */
  wake(): void {
    this.changes.notify();
  }

  /** Resolves after the next change of the leader or of the role, or as {@link sleep}. */
  waitForChange(delayMs: number, signal: AbortSignal): Promise<void> {
    return this.changes.wait(this.deps.clock, delayMs, signal);
  }

  /** Resolves after a time, or when the signal is aborted. */
  sleep(delayMs: number, signal: AbortSignal): Promise<void> {
    return new ChangeSignal().wait(this.deps.clock, delayMs, signal);
  }

  /**
   * Forwards a unary call. Waits for a leader, and repeats a call that was not begun. A call with an
   * unknown outcome is repeated only when it changes nothing or has a request id, and then never
   * reported as one that was not begun.
   * @param takeOver - Called before each attempt; serves the call when this coordinator has become
   *   the leader, and returns undefined otherwise.
   * @throws the error of the leader unchanged; that of `createNoLeaderError` when none is reached.
   */
  async forwardUnary(
    method: DescMethodUnary,
    request: object,
    context: HandlerContext,
    takeOver: () => { readonly response: unknown } | undefined,
    { holdMs = CALL_HOLD_MS, createNoLeaderError }: ForwardOptions,
  ): Promise<unknown> {
    const { clock } = this.deps;
    const giveUpAtMs = clock.now() + holdMs;
    // The first attempt whose change may have been made.
    let unknown: { readonly cause: unknown } | undefined;
    for (;;) {
      const own = takeOver();
      if (own !== undefined) return own.response;
      const connected = await this.connect(context.signal);
      if (connected !== undefined) {
        const attempt = this.startAttempt(connected.leader, context.signal);
        try {
          const response = await connected.transport.unary(
            method,
            attempt.signal,
            context.timeoutMs(),
            this.createHeaders(context),
            request as never,
          );
          copyResponseHeaders(response, context);
          return response.message;
        } catch (reason) {
          context.signal.throwIfAborted();
          const failure = classifyFailure(reason);
          if (failure === 'answered') throw toForwardedError(reason);
          if (failure === 'unknown' && !isReadMethod(method)) {
            unknown ??= { cause: reason };
            if (!hasRequestId(request)) throw createUnknownOutcomeError(method.name, reason);
          }
          this.deps.log.debug('call is repeated', { rpc: method.name, ...errorFields(reason) });
        } finally {
          attempt.end();
        }
      }
      if (unknown !== undefined && clock.now() >= giveUpAtMs)
        throw createUnknownOutcomeError(method.name, unknown.cause);
      await this.pause(context.signal, giveUpAtMs, connected?.leader, createNoLeaderError);
    }
  }

  /**
   * Forwards a streaming call. A call whose client has one message is repeated until the leader has
   * begun it; a call with a stream of messages only until the leader is reached.
   * @param takeOver - As in {@link forwardUnary}.
   */
  async *forwardStream(
    method: DescMethodStreaming,
    request: unknown,
    context: HandlerContext,
    takeOver: () => { readonly response: unknown } | undefined,
    { holdMs = CALL_HOLD_MS, createNoLeaderError }: ForwardOptions,
  ): AsyncGenerator<unknown> {
    const giveUpAtMs = this.deps.clock.now() + holdMs;
    const hasOneRequest = method.methodKind === 'server_streaming';
    for (;;) {
      const own = takeOver();
      if (own !== undefined) return yield* own.response as AsyncIterable<unknown>;
      const connected = await this.connect(context.signal);
      if (connected !== undefined) {
        const attempt = this.startAttempt(connected.leader, context.signal);
        let hasBegun = false;
        try {
          const response = await connected.transport.stream(
            method,
            attempt.signal,
            context.timeoutMs(),
            this.createHeaders(context),
            (hasOneRequest ? toStream(request) : request) as never,
          );
          copyResponseHeaders({ header: response.header, trailer: new Headers() }, context);
          for await (const message of response.message) {
            hasBegun = true;
            yield message;
          }
          copyResponseHeaders({ header: new Headers(), trailer: response.trailer }, context);
          return;
        } catch (reason) {
          context.signal.throwIfAborted();
          const mayRepeat = hasOneRequest && !hasBegun && classifyFailure(reason) === 'notStarted';
          if (!mayRepeat)
            throw isAnswer(reason)
              ? toForwardedError(reason)
              : createInterruptedError(method.name, reason);
        } finally {
          attempt.end();
        }
      }
      await this.pause(context.signal, giveUpAtMs, connected?.leader, createNoLeaderError);
    }
  }

  /** Returns undefined when there is no leader, or it is not reached. */
  private async connect(
    signal: AbortSignal,
  ): Promise<{ readonly leader: KnownLeader; readonly transport: Transport } | undefined> {
    const { leaders, coordinatorId, log } = this.deps;
    const leader = leaders.leader();
    // An earlier process of this coordinator may still have the lease.
    if (leader === undefined || leader.address === '' || leader.coordinatorId === coordinatorId)
      return undefined;
    try {
      return { leader, transport: await this.deps.connect(leader, signal) };
    } catch (reason) {
      signal.throwIfAborted();
      log.debug('leader not reached', { address: leader.address, ...errorFields(reason) });
      return undefined;
    }
  }

  /**
   * Begins an attempt, which ends soon after another coordinator leads: a leader that hangs or was
   * cut off never answers.
   */
  private startAttempt({ epoch }: KnownLeader, signal: AbortSignal) {
    const { clock, leaders } = this.deps;
    const attempt = new AbortController();
    const abort = (): void => attempt.abort(signal.reason);
    signal.addEventListener('abort', abort, { once: true });
    if (signal.aborted) abort();
    let timer: ReturnType<Clock['setTimer']> | undefined;
    const unsubscribe = leaders.onChange(() => {
      const current = leaders.leader();
      if (current === undefined || current.epoch === epoch) return;
      timer ??= clock.setTimer(LATE_ANSWER_MS, () => attempt.abort());
    });
    const end = (): void => {
      timer?.cancel();
      unsubscribe();
      signal.removeEventListener('abort', abort);
      attempt.abort();
    };
    return { signal: attempt.signal, end };
  }

  /**
   * @throws the error of `createError` at the end of the hold, and the reason of an aborted signal.
   */
  private async pause(
    signal: AbortSignal,
    giveUpAtMs: number,
    tried: KnownLeader | undefined,
    createError: ForwardOptions['createNoLeaderError'],
  ): Promise<void> {
    const { clock, leaders } = this.deps;
    const leftMs = giveUpAtMs - clock.now();
    const leader = leaders.leader();
    if (leftMs <= 0) throw createError();
    // The leader has changed during the attempt.
    if (leader !== undefined && tried !== undefined && leader.epoch > tried.epoch) return;
    const isKnown = leader !== undefined;
    await this.changes.wait(clock, isKnown ? Math.min(RETRY_MS, leftMs) : leftMs, signal);
    signal.throwIfAborted();
  }

  private createHeaders(context: HandlerContext): Headers {
    const { getClient, coordinatorId: forwardedBy } = this.deps;
    return createForwardingHeaders(context.requestHeader, { forwardedBy, ...getClient(context) });
  }
}

/** Returns true for an RPC that changes nothing. */
export function isReadMethod(method: DescMethod): boolean {
  return method.idempotency === Idempotency.NO_SIDE_EFFECTS;
}

/**
 * Returns true for a change that may be asked for twice: the leader makes the change at most once.
 */
function hasRequestId(request: object): boolean {
  return (
    'requestId' in request && typeof request.requestId === 'string' && request.requestId !== ''
  );
}

async function* toStream(request: unknown): AsyncGenerator<unknown> {
  yield request;
}
