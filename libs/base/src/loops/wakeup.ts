import type { StopSignal } from '../time/clock.js';

/**
 * Lets a loop wait until another part of the program changes the state that the loop reads.
 *
 * The loop reads the state and calls `wait` without an await in between; the other part changes the
 * state and calls `wake`. So the loop misses no change, although `wake` has no effect while no loop
 * waits. A wait may also end without a change, so the loop reads the state again after each wait.
 * @example
 * ```ts
 * async function* items(): AsyncGenerator<string> {
 *   for (;;) {
 *     const item = queue.shift();
 *     if (item !== undefined) yield item;
 *     else if (signal.aborted) return;
 *     else await wakeup.wait(signal);
 *   }
 * }
 * function push(item: string): void {
 *   queue.push(item);
 *   wakeup.wake();
 * }
 * ```
 */
export class Wakeup {
  private waiting: Promise<void> | undefined;
  private resolve: () => void = () => undefined;

  /**
   * Resolves at the next {@link wake}, and never rejects.
   * @param signal - Also resolves when this signal is aborted, at once if it was aborted before.
   *   All other waits of this object resolve then too.
   */
  wait(signal?: StopSignal): Promise<void> {
    if (signal?.aborted === true) return Promise.resolve();
    this.waiting ??= new Promise((resolve) => (this.resolve = resolve));
    if (signal === undefined) return this.waiting;
    const onAbort = (): void => this.wake();
    signal.addEventListener('abort', onAbort, { once: true });
    return this.waiting.then(() => signal.removeEventListener('abort', onAbort));
  }

  /** Resolves all pending waits. Does nothing when there are none. */
  wake(): void {
    this.waiting = undefined;
    this.resolve();
  }
}
