import { Code, ConnectError } from '@connectrpc/connect';

/** Why the signal of a call that is over is aborted. */
const CALL_ENDED = new ConnectError('the call has ended', Code.Canceled);

/** How the items of a stream came to their end. */
export interface StreamEnd {
  /** Present when the stream failed. */
  readonly failure?: { readonly reason: unknown };
}

/**
 * The life of one call. Its signal follows the request's; when it is aborted, whatever the call
 * waits for fails at once with the reason, whether the handler heeds the signal or not.
 */
export class CallScope {
  private readonly controller = new AbortController();
  private rejectPending: ((reason: unknown) => void) | undefined;
  private readonly onOuterAbort = (): void => this.abort(this.outer.reason);

  constructor(private readonly outer: AbortSignal) {
    if (outer.aborted) this.onOuterAbort();
    else outer.addEventListener('abort', this.onOuterAbort, { once: true });
  }

  /** Aborted when the call is to end, and after it has ended. */
  get signal(): AbortSignal {
    return this.controller.signal;
  }

  /** Ends the call. A reason that is no ConnectError means that its client has gone. */
  abort(reason: unknown): void {
    if (this.signal.aborted) return;
    const known =
      reason instanceof ConnectError
        ? reason
        : new ConnectError(
            'the client ended the call',
            Code.Canceled,
            undefined,
            undefined,
            reason,
          );
    this.controller.abort(known);
    this.rejectPending?.(known);
  }

  /** Settles as `work` does, or rejects when the call is aborted first. One at a time. */
  race<Result>(work: Promise<Result>): Promise<Result> {
    return new Promise<Result>((resolve, reject) => {
      this.rejectPending = reject;
      work.then(resolve, reject);
      if (this.signal.aborted) reject(this.signal.reason);
    });
  }

  /**
   * Hands on what `source` yields until it ends or the call is aborted, releases the call, then
   * calls `ended`.
   */
  guard<Item>(source: AsyncIterable<Item>, ended: (end: StreamEnd) => void): AsyncIterable<Item> {
    const end = (how: StreamEnd): void => {
      this.release();
      ended(how);
    };
    return {
      [Symbol.asyncIterator]: () => {
        const items = source[Symbol.asyncIterator]();
        // A handler that heeds no signal may never answer this: nobody waits for it.
        const leave = (): void => void items.return?.().then(undefined, () => undefined);
        // Between two items nobody waits for the handler; it is not to be kept until somebody does,
        // as a slow reader may never.
        const onAbort = (): void => {
          if (!waiting) leave();
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
                leave();
                throw reason;
              },
            );
          },
          return: (value?: unknown) => {
            end({});
            leave();
            return Promise.resolve({ done: true, value });
          },
        };
      },
    };
  }

  /** The call is over. */
  release(): void {
    this.outer.removeEventListener('abort', this.onOuterAbort);
    this.rejectPending = undefined;
    if (!this.signal.aborted) this.controller.abort(CALL_ENDED);
  }
}
