import {
  ConnectError,
  createContextKey,
  type ContextKey,
  type Interceptor,
} from '@connectrpc/connect';
import { errorFields, type Clock, type Log, type Timer } from '@cloudless/base';
import { toConnectError } from '@cloudless/api';
import { DirectWrites } from '../admission/direct-writes.js';
import { createError } from '../admission/retryable-error.js';
import { AbortableCall } from './abortable-call.js';
import { callerKey, type Caller } from './call-authorization.js';

export interface CallLifetimesSettings {
  readonly clock: Clock;
  readonly log: Log;
  /** Deadline of a unary call whose client sets no deadline, in milliseconds. */
  readonly unaryDeadlineMs: number;
}

/** Aborts a call from outside of its handler, or writes to its response. */
export class CallCanceller {
  readonly directWrites = new DirectWrites();
  private reason: ConnectError | undefined;
  private listener: ((reason: ConnectError) => void) | undefined;

  /**
   * Ends the call with `reason`, also when its handler has not started. Later reasons are ignored.
   */
  cancel(reason: ConnectError): void {
    this.reason ??= reason;
    this.listener?.(this.reason);
  }

  /** Sets the only listener. Runs `listener` at once when the call was cancelled before. */
  onCancel(listener: (reason: ConnectError) => void): void {
    this.listener = listener;
    if (this.reason !== undefined) listener(this.reason);
  }
}

/**
 * Context value of each call of a server: `context.values.get(callCancellerKey)?.cancel(reason)`.
 */
export const callCancellerKey: ContextKey<CallCanceller | undefined> = createContextKey<
  CallCanceller | undefined
>(undefined, {
  description: 'control of the call',
});

/**
 * Returns true when the client sets a deadline with the header of the protocol of its call, which
 * Connect enforces. Connect ignores the header of another protocol.
 * @see https://connectrpc.com/docs/protocol and the gRPC specification, "gRPC over HTTP2"
 */
function hasClientDeadline(header: Headers): boolean {
  const isGrpc = /^application\/grpc/i.test(header.get('content-type') ?? '');
  return header.has(isGrpc ? 'grpc-timeout' : 'connect-timeout-ms');
}

/** Time between two checks of the clients of open calls, in milliseconds. */
const RECHECK_INTERVAL_MS = 1_000;

/** Limits how long calls last. `interceptor` must be the outermost interceptor of a server. */
export class CallLifetimes {
  private readonly streams = new Set<AbortableCall>();
  /** Open calls whose client can lose the right to call. */
  private readonly checkedCalls = new Map<AbortableCall, Caller>();
  private recheckTimer: Timer | undefined;
  private endReason: ConnectError | undefined;

  constructor(private readonly settings: CallLifetimesSettings) {}

  /**
   * Ends every open stream with `reason`, and every stream that starts later. Unary calls continue.
   */
  endStreams(reason: ConnectError): void {
    this.endReason = reason;
    for (const call of [...this.streams]) call.abort(reason);
  }

  /** Ends the open calls whose clients may no longer call, each with the error of its check. */
  recheckCallers(): void {
    for (const [call, caller] of [...this.checkedCalls]) {
      try {
        checkCaller(caller);
      } catch (reason) {
        call.abort(reason);
      }
    }
  }

  /**
   * Ends a call when its signal is aborted: the client has gone, or its deadline has passed. A
   * unary call without a deadline of the client in the header of its protocol ends after
   * `unaryDeadlineMs`. Logs each error of a handler that is no ConnectError.
   */
  readonly interceptor: Interceptor = (next) => async (request) => {
    const call = new AbortableCall(request.signal);
    const timer = request.stream
      ? undefined
      : this.startDeadline(call, request.header, request.method.name);
    if (request.stream) this.streams.add(call);
    const caller = request.contextValues.get(callerKey);
    if (caller !== undefined) {
      this.checkedCalls.set(call, caller);
      this.startRecheckTimer();
    }
    const releaseCall = (): void => {
      timer?.cancel();
      this.streams.delete(call);
      this.stopChecks(call);
      call.release();
    };
    try {
      if (request.stream && this.endReason !== undefined) call.abort(this.endReason);
      request.contextValues.get(callCancellerKey)?.onCancel((reason) => call.abort(reason));
      if (call.signal.aborted) throw call.signal.reason;
      // the request may have taken long to arrive
      if (caller !== undefined) checkCaller(caller);
      const response = await call.race(next({ ...request, signal: call.signal }));
      if (!response.stream) {
        releaseCall();
        return response;
      }
      const message = call.forward(response.message, ({ failure }) => {
        if (failure !== undefined) this.logUnexpected(failure.reason, request.method.name);
        releaseCall();
      });
      return { ...response, message };
    } catch (reason) {
      this.logUnexpected(reason, request.method.name);
      releaseCall();
      throw reason;
    }
  };

  private startRecheckTimer(): void {
    this.recheckTimer ??= this.settings.clock.setTimer(RECHECK_INTERVAL_MS, () => {
      this.recheckTimer = undefined;
      this.recheckCallers();
      if (this.checkedCalls.size > 0) this.startRecheckTimer();
    });
  }

  private stopChecks(call: AbortableCall): void {
    this.checkedCalls.delete(call);
    if (this.checkedCalls.size > 0) return;
    this.recheckTimer?.cancel();
    this.recheckTimer = undefined;
  }

  private startDeadline(
    call: AbortableCall,
    header: Headers,
    rpc: string,
  ): { cancel(): void } | undefined {
    // Connect aborts the signal of the request at the deadline of the client
    if (hasClientDeadline(header)) return undefined;
    const { clock, unaryDeadlineMs } = this.settings;
    return clock.setTimer(unaryDeadlineMs, () =>
      call.abort(
        createError('DEADLINE_EXCEEDED', `${rpc} gave no answer within ${unaryDeadlineMs} ms`),
      ),
    );
  }

  /** Logs an error whose message clients do not get: they get only "internal error". */
  private logUnexpected(reason: unknown, rpc: string): void {
    if (!(reason instanceof ConnectError))
      this.settings.log.error('rpc handler failed', { rpc, ...errorFields(reason) });
  }
}

/** @throws ConnectError when the calls of `caller` must end. */
function checkCaller(caller: Caller): void {
  try {
    caller.check();
  } catch (reason) {
    throw toConnectError(reason);
  }
}
