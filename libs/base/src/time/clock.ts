/**
 * The part of `AbortSignal` that base and the cores use. The cores compile without a platform
 * library, and every `AbortSignal` satisfies this interface.
 */
export interface StopSignal {
  readonly aborted: boolean;
  readonly reason?: unknown;
  addEventListener(type: 'abort', listener: () => void, options?: { once?: boolean }): void;
  removeEventListener(type: 'abort', listener: () => void): void;
}

/** A pending timer. Cancelling it again, or after it has fired, does nothing. */
export interface Timer {
  cancel(): void;
}

/**
 * Source of time for all libraries except adapters and apps. Callers pass the clock as an argument,
 * so that a whole cluster can run on virtual time. Use `now` for durations and `wallTime` for times
 * that people read.
 */
export interface Clock {
  /** Monotonic milliseconds since an arbitrary origin; may have a fraction and never decreases. */
  now(): number;
  /**
   * Milliseconds since the Unix epoch. May jump in either direction, so never use differences as
   * durations.
   */
  wallTime(): number;
  /**
   * Runs `action` once, `delayMs` from now; a negative delay counts as 0. A pending timer does not
   * keep the process alive.
   */
  setTimer(delayMs: number, action: () => void): Timer;
}

/** Error of a wait whose signal was aborted. The reason of the signal is the `cause`. */
export class StoppedError extends Error {
  override readonly name = 'StoppedError';
  constructor(reason?: unknown) {
    super('stopped', reason === undefined ? undefined : { cause: reason });
  }
}

/**
 * Resolves `delayMs` milliseconds from now.
 * @throws {@link StoppedError} when `signal` is aborted before or during the sleep.
 */
export function sleep(clock: Clock, delayMs: number, signal?: StopSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) {
      reject(new StoppedError(signal.reason));
      return;
    }
    const onAbort = (): void => {
      timer.cancel();
      reject(new StoppedError(signal?.reason));
    };
    const timer = clock.setTimer(delayMs, () => {
      signal?.removeEventListener('abort', onAbort);
      resolve();
    });
    signal?.addEventListener('abort', onAbort, { once: true });
  });
}
