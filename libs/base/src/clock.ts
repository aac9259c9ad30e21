/**
 * The part of an `AbortSignal` that base and the cores use, so that they compile without a platform
 * library. Every `AbortSignal` satisfies it.
 */
export interface StopSignal {
  readonly aborted: boolean;
  readonly reason?: unknown;
  addEventListener(type: 'abort', listener: () => void, options?: { once?: boolean }): void;
  removeEventListener(type: 'abort', listener: () => void): void;
}

/** A timer that has been set. Cancelling twice, or after it fired, does nothing. */
export interface Timer {
  cancel(): void;
}

/**
 * Time as everything but adapters and apps sees it. Passed in, so that a whole cluster runs on
 * virtual time. Two clocks in one: `now` for durations, `wallTime` for what people read.
 */
export interface Clock {
  /** Monotonic milliseconds since an arbitrary origin; may have a fraction; never goes back. */
  now(): number;
  /**
   * Milliseconds since the Unix epoch; may jump in either direction. Never compare two to measure a
   * duration.
   */
  wallTime(): number;
  /**
   * Runs `action` once, `delayMs` (0 or more) from now. Does not keep the process alive on its own.
   */
  setTimer(delayMs: number, action: () => void): Timer;
}

/** Says that a wait ended because its signal was aborted; the signal's reason is the `cause`. */
export class StoppedError extends Error {
  override readonly name = 'StoppedError';
  constructor(reason?: unknown) {
    super('stopped', reason === undefined ? undefined : { cause: reason });
  }
}

/**
 * Resolves `delayMs` milliseconds from now.
 * @throws {@link StoppedError} as soon as `signal` is aborted, also when it was before the call.
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
