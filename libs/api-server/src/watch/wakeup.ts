import type { Clock, StopSignal, Timer } from '@cloudless/base';

/**
 * Time without an item after which a stream sends a bookmark, so that both sides know that the
 * connection is alive.
 */
export const BOOKMARK_MS = 15_000;

/**
 * Wakes one waiting loop. A notification while no loop waits ends the next wait at once; several
 * such notifications count as one.
 */
export class Wakeup {
  private pending = false;
  private resolve: (() => void) | undefined;

  /** Ends the current wait, or the next one. */
  notify(): void {
    this.pending = true;
    this.resolve?.();
  }

  /**
   * Waits for a notification. Only one call may wait at a time.
   * @returns `woken`, `timeout` after `timeoutMs`, or `stopped` when the signal is aborted.
   */
  async wait(
    clock: Clock,
    timeoutMs: number,
    signal: StopSignal,
  ): Promise<'woken' | 'timeout' | 'stopped'> {
    if (signal.aborted) return 'stopped';
    let timer: Timer | undefined;
    let timedOut = false;
    const wake = (): void => this.resolve?.();
    await new Promise<void>((resolve) => {
      this.resolve = resolve;
      signal.addEventListener('abort', wake);
      timer = clock.setTimer(timeoutMs, () => {
        timedOut = true;
        resolve();
      });
      if (this.pending) resolve();
    });
    this.resolve = undefined;
    timer?.cancel();
    signal.removeEventListener('abort', wake);
    if (signal.aborted) return 'stopped';
    if (this.pending) {
      this.pending = false;
      return 'woken';
    }
    return timedOut ? 'timeout' : 'woken';
  }
}

/**
 * A set of changed keys for one reader. The set contains each key once however slow the reader is:
 * a slow reader skips states, and the set does not grow.
 */
export class ChangedKeys {
  private keys = new Set<string>();
  private readonly wakeup = new Wakeup();

  /** Adds a changed key and wakes the reader. */
  mark(key: string): void {
    this.keys.add(key);
    this.wakeup.notify();
  }

  /**
   * Returns and clears the keys that were marked since the last call; waits for the first key.
   * @returns No keys after {@link BOOKMARK_MS} without a mark; undefined when the signal is
   *   aborted.
   */
  async next(clock: Clock, signal: StopSignal): Promise<readonly string[] | undefined> {
    while (this.keys.size === 0) {
      const result = await this.wakeup.wait(clock, BOOKMARK_MS, signal);
      if (result === 'stopped') return undefined;
      if (result === 'timeout') return [];
    }
    if (signal.aborted) return undefined;
    const keys = [...this.keys];
    this.keys = new Set();
    return keys;
  }
}
