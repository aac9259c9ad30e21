import type { Clock, CloudlessError, StopSignal } from '@cloudless/base';
import { Wakeup } from './changes.js';

/** What {@link ChangeQueue.next} found. */
export type QueueTurn =
  | { readonly kind: 'key'; readonly key: string }
  | { readonly kind: 'silence' }
  | { readonly kind: 'stopped' };

/**
 * Keys that changed and have not been sent, in the order of their first change that was not.
 * However slow the reader, it holds each key once: a watcher that falls behind skips states, never
 * grows. Because of the order it can say at any moment up to which revision all has been handed
 * out.
 */
export class ChangeQueue {
  private firstChanges = new Map<string, bigint>();
  private readonly wakeup = new Wakeup();
  private ended: CloudlessError | undefined;

  /** @param revision - Of the change; not below that of any mark before. */
  mark(key: string, revision: bigint): void {
    if (!this.firstChanges.has(key)) this.firstChanges.set(key, revision);
    this.wakeup.notify();
  }

  /**
   * Puts keys in front of all that were marked. @param entries - With the revision of their change,
   * ascending, none above a mark's.
   */
  putBefore(entries: Iterable<readonly [string, bigint]>): void {
    const marked = this.firstChanges;
    this.firstChanges = new Map();
    for (const [key, revision] of entries) this.mark(key, revision);
    for (const [key, revision] of marked) this.mark(key, revision);
  }

  /** Lets the reader fail once it has taken what is there. */
  end(reason: CloudlessError): void {
    this.ended = reason;
    this.wakeup.notify();
  }

  /**
   * Takes the next key; or says that it is `silentAt` by the monotonic clock, or that the reader
   * has gone.
   */
  async next(clock: Clock, signal: StopSignal, silentAt: number): Promise<QueueTurn> {
    for (;;) {
      if (signal.aborted) return { kind: 'stopped' };
      if (clock.now() >= silentAt) return { kind: 'silence' };
      const [key] = this.firstChanges.keys();
      if (key !== undefined) {
        this.firstChanges.delete(key);
        return { kind: 'key', key };
      }
      if (this.ended !== undefined) throw this.ended;
      await this.wakeup.wait(clock, silentAt - clock.now(), signal);
    }
  }

  /**
   * Everything up to this revision has been taken. @param newest - The revision of the state that
   * marks come from.
   */
  takenUpTo(newest: bigint): bigint {
    const [first] = this.firstChanges.values();
    return first === undefined ? newest : first - 1n;
  }
}
