import { StoppedError, type StopSignal } from '@cloudless/base';
import type { Revision } from '@cloudless/state-store';

/** A wait for a revision. */
interface Waiter {
  readonly revision: Revision;
  readonly signal: StopSignal | undefined;
  readonly resolve: () => void;
  readonly reject: (reason: unknown) => void;
}

/** The listener on a signal, and the number of waits that end at the signal. */
interface SignalListener {
  readonly onAbort: () => void;
  waits: number;
}

/**
 * Waits until a view shows a revision. All waits that end at one signal share one listener on it:
 * every commit in flight of a leadership waits, and ends with the leadership.
 */
export class RevisionWaiters {
  private waiters: Waiter[] = [];
  private readonly listeners = new Map<StopSignal, SignalListener>();

  /**
   * Waits for a revision that the view does not show yet.
   * @param signal - Ends the wait. Not aborted yet.
   * @throws The reason of {@link rejectAll}; `StoppedError` when `signal` is aborted.
   */
  wait(revision: Revision, signal?: StopSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      this.waiters.push({ revision, signal, resolve, reject });
      if (signal !== undefined) this.listenTo(signal);
    });
  }

  /** Resolves the waits for this revision and for earlier ones. */
  resolveUpTo(revision: Revision): void {
    for (const waiter of this.take((other) => other.revision <= revision)) waiter.resolve();
  }

  rejectAll(reason: unknown): void {
    for (const waiter of this.take(() => true)) waiter.reject(reason);
  }

  /** Removes the waits that meet a condition, and the listeners that have no waits left. */
  private take(isTaken: (waiter: Waiter) => boolean): readonly Waiter[] {
    const taken = this.waiters.filter(isTaken);
    if (taken.length === 0) return taken;
    this.waiters = this.waiters.filter((waiter) => !isTaken(waiter));
    for (const { signal } of taken) if (signal !== undefined) this.release(signal);
    return taken;
  }

  private listenTo(signal: StopSignal): void {
    const known = this.listeners.get(signal);
    if (known !== undefined) {
      known.waits += 1;
      return;
    }
    const onAbort = (): void => {
      for (const waiter of this.take((other) => other.signal === signal))
        waiter.reject(new StoppedError(signal.reason));
    };
    this.listeners.set(signal, { onAbort, waits: 1 });
    signal.addEventListener('abort', onAbort);
  }

  private release(signal: StopSignal): void {
    const listener = this.listeners.get(signal);
    if (listener === undefined) return;
    listener.waits -= 1;
    if (listener.waits > 0) return;
    this.listeners.delete(signal);
    signal.removeEventListener('abort', listener.onAbort);
  }
}
