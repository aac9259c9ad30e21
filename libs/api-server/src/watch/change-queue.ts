import type { Clock, CloudlessError, StopSignal } from '@cloudless/base';
import { Wakeup } from './wakeup.js';

/** Result of {@link ChangeQueue.next}. */
export type QueueTurn =
  | { readonly kind: 'key'; readonly key: string }
  | { readonly kind: 'silence' }
  | { readonly kind: 'stopped' };

/**
 * Keys that have changed and have not been sent, in the order of their first unsent change. Each
 * key is held once however slow the reader is: a slow reader skips states, and the queue does not
 * grow. Because of the order, the queue knows at any time up to which revision all changes have
 * been delivered.
 */
export class ChangeQueue {
  private firstChanges = new Map<string, bigint>();
  private readonly wakeup = new Wakeup();
  private ended: CloudlessError | undefined;

  /**
   * Adds a changed key. @param revision - Revision of the change; not lower than that of any
   * earlier mark.
   */
  mark(key: string, revision: bigint): void {
    if (!this.firstChanges.has(key)) this.firstChanges.set(key, revision);
    this.wakeup.notify();
  }

  /**
   * Inserts keys before all keys that were marked.
   * @param entries - Keys with the revision of their change, in ascending order; no revision is
   *   higher than that of a mark.
   */
  putBefore(entries: Iterable<readonly [string, bigint]>): void {
    const marked = this.firstChanges;
    this.firstChanges = new Map();
    for (const [key, revision] of entries) this.mark(key, revision);
    for (const [key, revision] of marked) this.mark(key, revision);
  }

  /** Makes {@link next} fail once the queue is empty. */
  fail(reason: CloudlessError): void {
    this.ended = reason;
    this.wakeup.notify();
  }

  /**
   * Removes and returns the next key. Returns `silence` at time `silentAt` of the monotonic clock,
   * and `stopped` when the signal is aborted.
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
   * Returns the revision up to which all changes have been delivered.
   * @param newest - Revision of the state that the marks come from.
   */
  getDeliveredRevision(newest: bigint): bigint {
    const [first] = this.firstChanges.values();
    return first === undefined ? newest : first - 1n;
  }
}
