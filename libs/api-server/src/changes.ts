import type { Clock, StopSignal, Timer } from '@cloudless/base';

/**
 * A stream that has nothing to say says so this often, so that both sides know the other is there.
 */
export const BOOKMARK_MS = 15_000;

/** Wakes one waiting loop. Notifications while nobody waits are kept as one. */
export class Wakeup {
  private pending = false;
  private resolve: (() => void) | undefined;

  notify(): void {
    this.pending = true;
    this.resolve?.();
  }

  /**
   * Waits for a notification.
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
 * Keys that changed and have not been looked at. However slow the reader, it holds each key once: a
 * watcher that falls behind skips states, never grows.
 */
export class DirtyKeys {
  private keys = new Set<string>();
  private readonly wakeup = new Wakeup();

  mark(key: string): void {
    this.keys.add(key);
    this.wakeup.notify();
  }

  /**
   * The keys marked since the last call; empty after {@link BOOKMARK_MS} of silence; undefined when
   * stopped.
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
