import { Code, ConnectError } from '@connectrpc/connect';

/** Abort reason of the signal of a call that has ended. */
const CALL_ENDED = new ConnectError('the call has ended', Code.Canceled);

export interface StreamEnd {
  /** Present when the stream failed; absent when it ended normally. */
  readonly failure?: { readonly reason: unknown };
}

/**
 * One call that can be aborted from outside. Its signal follows the signal of the request. An abort
 * makes every pending wait of the call fail at once, also when the handler ignores the signal.
 */
export class AbortableCall {
  private readonly controller = new AbortController();
  private rejectPending: ((reason: unknown) => void) | undefined;
  private readonly onOuterAbort = (): void => this.abort(this.outer.reason);

  constructor(private readonly outer: AbortSignal) {
    if (outer.aborted) this.onOuterAbort();
    else outer.addEventListener('abort', this.onOuterAbort, { once: true });
  }

  /** Aborted when the call must end, and after it has ended. */
  get signal(): AbortSignal {
    return this.controller.signal;
  }

  /** Ends the call. A reason that is no ConnectError means that the client has gone. */
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
   * Settles like `work`, or rejects with the abort reason if the call is aborted first. Only one
   * race may run at a time.
   */
  race<Result>(work: Promise<Result>): Promise<Result> {
    return new Promise<Result>((resolve, reject) => {
      this.rejectPending = reject;
      work.then(resolve, reject);
      if (this.signal.aborted) reject(this.signal.reason);
    });
  }

  /**
   * Forwards the items of `source` until it ends or the call is aborted. Then releases the call and
   * runs `ended`.
   */
  forward<Item>(source: AsyncIterable<Item>, onEnd: (end: StreamEnd) => void): AsyncIterable<Item> {
    const end = (how: StreamEnd): void => {
      this.release();
      onEnd(how);
    };
    return {
      [Symbol.asyncIterator]: () => {
        const items = source[Symbol.asyncIterator]();
        // Not awaited: a handler that ignores the signal may never return.
        const stopSource = (): void => void items.return?.().then(undefined, () => undefined);
        // An abort between two items stops the handler at once. A slow reader may never ask for the
        // next item.
        const onAbort = (): void => {
          if (!waiting) stopSource();
        };
        let waiting = false;
        this.signal.addEventListener('abort', onAbort, { once: true });
        return {
          next: () => {
            waiting = true;
            return this.race(
              this.signal.aborted ? Promise.reject(this.signal.reason) : items.next(),
            ).then(
              (result) => {
                waiting = false;
                if (result.done === true) end({});
                return result;
              },
              (reason: unknown) => {
                end({ failure: { reason } });
                stopSource();
                throw reason;
              },
            );
          },
          return: (value?: unknown) => {
            end({});
            stopSource();
            return Promise.resolve({ done: true, value });
          },
        };
      },
    };
  }

  /** Ends the call and its subscription to the request's signal. */
  release(): void {
    this.outer.removeEventListener('abort', this.onOuterAbort);
    this.rejectPending = undefined;
    if (!this.signal.aborted) this.controller.abort(CALL_ENDED);
  }
}
