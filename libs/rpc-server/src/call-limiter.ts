import { errorFields, type Clock, type Log } from '@cloudless/base';
import {
  Code,
  ConnectError,
  createContextKey,
  type ContextKey,
  type Interceptor,
} from '@connectrpc/connect';
import { CallScope } from './call-scope.js';

/** What {@link CallLimiter} needs. */
export interface CallLimiterSettings {
  readonly clock: Clock;
  readonly log: Log;
  readonly unaryDeadlineMs: number;
}

/** Ends a call from outside of its handler. */
export class CallControl {
  private reason: ConnectError | undefined;
  private onEnd: ((reason: ConnectError) => void) | undefined;

  /**
   * Ends the call with `reason`, also when its handler has not begun. Only the first reason counts.
   */
  end(reason: ConnectError): void {
    this.reason ??= reason;
    this.onEnd?.(this.reason);
  }

  /** One listener; it is called at once when the call is to end already. */
  listen(onEnd: (reason: ConnectError) => void): void {
    this.onEnd = onEnd;
    if (this.reason !== undefined) onEnd(this.reason);
  }
}

/** The control of a call, put there by who may end it. */
export const callControlKey: ContextKey<CallControl | undefined> = createContextKey<
  CallControl | undefined
>(undefined, {
  description: 'control of the call',
});

/** Headers by which clients state a deadline, in Connect and in gRPC. */
const DEADLINE_HEADERS = ['connect-timeout-ms', 'grpc-timeout'];

/** Ends calls when their time is over: the outermost interceptor of a server. */
export class CallLimiter {
  private readonly streams = new Set<CallScope>();
  private endReason: ConnectError | undefined;

  constructor(private readonly settings: CallLimiterSettings) {}

  /** Ends every stream, now and from now on, with `reason`. Unary calls go on. */
  endStreams(reason: ConnectError): void {
    this.endReason = reason;
    for (const scope of [...this.streams]) scope.abort(reason);
  }

  /**
   * A call ends when its signal is aborted (client gone, stated deadline passed), a unary one
   * without a stated deadline after `unaryDeadlineMs`. What handlers throw is logged here unless
   * something inside has made a ConnectError of it.
   */
  readonly interceptor: Interceptor = (next) => async (req) => {
    const scope = new CallScope(req.signal);
    const timer = req.stream ? undefined : this.startDeadline(scope, req.header, req.method.name);
    if (req.stream) this.streams.add(scope);
    const ended = (): void => {
      timer?.cancel();
      this.streams.delete(scope);
      scope.release();
    };
    try {
      if (req.stream && this.endReason !== undefined) scope.abort(this.endReason);
      req.contextValues.get(callControlKey)?.listen((reason) => scope.abort(reason));
      if (scope.signal.aborted) throw scope.signal.reason;
      const response = await scope.race(next({ ...req, signal: scope.signal }));
      if (!response.stream) {
        ended();
        return response;
      }
      const message = scope.guard(response.message, ({ failure }) => {
        if (failure !== undefined) this.logUnexpected(failure.reason, req.method.name);
        ended();
      });
      return { ...response, message };
    } catch (reason) {
      this.logUnexpected(reason, req.method.name);
      ended();
      throw reason;
    }
  };

  private startDeadline(
    scope: CallScope,
    header: Headers,
    rpc: string,
  ): { cancel(): void } | undefined {
    // Connect aborts the signal then
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

  /** Clients only see "internal error" of these, so the log must tell. */
  private logUnexpected(reason: unknown, rpc: string): void {
    if (!(reason instanceof ConnectError))
      this.settings.log.error('rpc handler failed', { rpc, ...errorFields(reason) });
  }
}
