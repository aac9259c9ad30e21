import {
  Code,
  ConnectError,
  createContextKey,
  type ContextKey,
  type Interceptor,
} from '@connectrpc/connect';
import { errorFields, type Clock, type Log } from '@cloudless/base';
import { AbortableCall } from './abortable-call.js';

export interface CallLifetimesSettings {
  readonly clock: Clock;
  readonly log: Log;
  readonly unaryDeadlineMs: number;
}

/** Aborts a call from outside of its handler. */
export class CallCanceller {
  private reason: ConnectError | undefined;
  private listener: ((reason: ConnectError) => void) | undefined;

  /**
   * Ends the call with `reason`, also when its handler has not started. Only the first reason
   * counts.
   */
  cancel(reason: ConnectError): void {
    this.reason ??= reason;
    this.listener?.(this.reason);
  }

  /** Sets the single listener. Runs it at once when the call has been aborted already. */
  onCancel(listener: (reason: ConnectError) => void): void {
    this.listener = listener;
    if (this.reason !== undefined) listener(this.reason);
  }
}

/**
 * Context value of each call of a server: `context.values.get(callCancellerKey)?.abort(reason)`.
 */
export const callCancellerKey: ContextKey<CallCanceller | undefined> = createContextKey<
  CallCanceller | undefined
>(undefined, {
  description: 'control of the call',
});

/** Headers that carry a client's deadline, in Connect and in gRPC. */
const DEADLINE_HEADERS = ['connect-timeout-ms', 'grpc-timeout'];

/** Limits how long calls last. Its interceptor must be the outermost one of a server. */
export class CallLifetimes {
  private readonly streams = new Set<AbortableCall>();
  private endReason: ConnectError | undefined;

  constructor(private readonly settings: CallLifetimesSettings) {}

  /**
   * Ends every open stream with `reason`, and every stream that starts later. Unary calls continue.
   */
  endStreams(reason: ConnectError): void {
    this.endReason = reason;
    for (const scope of [...this.streams]) scope.abort(reason);
  }

  /**
   * Ends a call when its signal is aborted (the client has gone, or its deadline has passed). A
   * unary call without a deadline of the client ends after `unaryDeadlineMs`. Logs errors of
   * handlers that are no ConnectError.
   */
  readonly interceptor: Interceptor = (next) => async (req) => {
    const scope = new AbortableCall(req.signal);
    const timer = req.stream ? undefined : this.startDeadline(scope, req.header, req.method.name);
    if (req.stream) this.streams.add(scope);
    const releaseCall = (): void => {
      timer?.cancel();
      this.streams.delete(scope);
      scope.release();
    };
    try {
      if (req.stream && this.endReason !== undefined) scope.abort(this.endReason);
      req.contextValues.get(callCancellerKey)?.onCancel((reason) => scope.abort(reason));
      if (scope.signal.aborted) throw scope.signal.reason;
      const response = await scope.race(next({ ...req, signal: scope.signal }));
      if (!response.stream) {
        releaseCall();
        return response;
      }
      const message = scope.forward(response.message, ({ failure }) => {
        if (failure !== undefined) this.logUnexpected(failure.reason, req.method.name);
        releaseCall();
      });
      return { ...response, message };
    } catch (reason) {
      this.logUnexpected(reason, req.method.name);
      releaseCall();
      throw reason;
    }
  };

  private startDeadline(
    scope: AbortableCall,
    header: Headers,
    rpc: string,
  ): { cancel(): void } | undefined {
    // Connect aborts `req.signal` at the client's deadline.
    if (DEADLINE_HEADERS.some((name) => header.has(name))) return undefined;
    const { clock, unaryDeadlineMs } = this.settings;
    return clock.setTimer(unaryDeadlineMs, () =>
      scope.abort(
        new ConnectError(
          `${rpc} gave no answer within ${unaryDeadlineMs} ms`,
          Code.DeadlineExceeded,
        ),
      ),
    );
  }

  /** Clients see only "internal error"; the log has the cause. */
  private logUnexpected(reason: unknown, rpc: string): void {
    if (!(reason instanceof ConnectError))
      this.settings.log.error('rpc handler failed', { rpc, ...errorFields(reason) });
  }
}
