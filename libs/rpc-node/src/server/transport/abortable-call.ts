import { Code, ConnectError } from '@connectrpc/connect';

/**
 * Abort reason of the signals of a call that has ended. The default reason of `abort` is a new error
 * with a stack trace.
 */
export const CALL_ENDED = new ConnectError('the call has ended', Code.Canceled);

/**
 * Returns why a request ended. A stream that its client resets is no failure of this server, whatever
 * code the client has sent.
 */
function toEnd(reason: unknown): unknown {
  const isReset = reason instanceof ConnectError && reason.code === Code.Internal;
  return isReset
    ? new ConnectError('the client ended the call', Code.Canceled, undefined, undefined, reason)
    : reason;
}

/** How a stream ended. */
export interface StreamEnd {
  /** Present when the stream failed or was aborted; absent when the stream ended normally. */
  readonly failure?: { readonly reason: unknown };
}

/**
 * One call that can be aborted from outside of its handler. The signal of the call follows the
 * signal of the request. An abort makes the pending wait of the call reject at once, also when the
 * handler ignores the signal.
 */
export class AbortableCall {
  private readonly controller = new AbortController();
  private rejectPending: ((reason: unknown) => void) | undefined;
  private readonly onOuterAbort = (): void => this.abort(toEnd(this.outer.reason));

  /** @param outer - Signal of the request. */
  constructor(private readonly outer: AbortSignal) {
    if (outer.aborted) this.onOuterAbort();
    else outer.addEventListener('abort', this.onOuterAbort, { once: true });
  }

  /** Aborted when the call must end, and after it has ended. */
  get signal(): AbortSignal {
    return this.controller.signal;
  }

  /**
   * Ends the call. Only the first call of `abort` has an effect.
   * @param reason - Reason of the rejection. A reason that is no ConnectError means that the client
   *   has gone, and becomes a ConnectError CANCELED.
   */
  abort(reason: unknown): void {
    if (this.signal.aborted) return;
    const error =
      reason instanceof ConnectError
        ? reason
        : new ConnectError(
            'the client ended the call',
            Code.Canceled,
            undefined,
            undefined,
            reason,
          );
    this.controller.abort(error);
    this.rejectPending?.(error);
  }

  /**
   * Settles as `work` does, or rejects with the abort reason if the call is aborted first. Only one
   * race may run at a time. Rejects with an error also when `work` rejects with undefined, which
   * Connect takes for the end of a successful call.
   */
  race<Result>(work: Promise<Result>): Promise<Result> {
    return new Promise<Result>((resolve, reject) => {
      this.rejectPending = reject;
      work.then(resolve, (reason: unknown) =>
        reject(reason ?? new Error('the handler failed without a reason')),
      );
      if (this.signal.aborted) reject(this.signal.reason);
    });
  }

  /**
   * Forwards the items of `source` until `source` ends or the call is aborted.
   * @param onEnd - Runs after the call was released, also when the reader stops early.
   */
  forward<Item>(source: AsyncIterable<Item>, onEnd: (end: StreamEnd) => void): AsyncIterable<Item> {
    const finish = (end: StreamEnd): void => {
      this.release();
      onEnd(end);
    };
    return {
      [Symbol.asyncIterator]: () => {
        const items = source[Symbol.asyncIterator]();
        // not awaited, because a handler that ignores the signal may never return
        const stopSource = (): void => void items.return?.().then(undefined, () => undefined);
        // an abort between two items stops the handler at once, because a slow reader may never
        // request the next item
        const onAbort = (): void => {
          if (!isWaiting) stopSource();
        };
        let isWaiting = false;
        this.signal.addEventListener('abort', onAbort, { once: true });
        return {
          next: () => {
            isWaiting = true;
            return this.race(
              this.signal.aborted ? Promise.reject(this.signal.reason) : items.next(),
            ).then(
              (result) => {
                isWaiting = false;
                if (result.done === true) finish({});
                return result;
              },
              (reason: unknown) => {
                finish({ failure: { reason } });
                stopSource();
                throw reason;
              },
            );
          },
          return: (value?: unknown) => {
            finish({});
            stopSource();
            return Promise.resolve({ done: true, value });
          },
        };
      },
    };
  }

  /** Ends the call: aborts its signal, and unsubscribes from the signal of the request. */
  release(): void {
    this.outer.removeEventListener('abort', this.onOuterAbort);
    this.rejectPending = undefined;
    if (!this.signal.aborted) this.controller.abort(CALL_ENDED);
  }
}
