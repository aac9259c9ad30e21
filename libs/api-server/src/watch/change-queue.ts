import type { Clock, CloudlessError, StopSignal } from '@cloudless/base';
import { Wakeup } from './wakeup.js';

/** Result of {@link ChangeQueue.next}: the next key, or why none is returned. */
export type QueueTurn =
  | { readonly kind: 'key'; readonly key: string }
  /** The caller has sent nothing for so long that a bookmark is due. Keys may be in the queue. */
  | { readonly kind: 'silence' }
  | { readonly kind: 'stopped' };

/**
 * A queue of keys that have changed and were not delivered yet, in the order of their first
 * undelivered change. Each key is queued at most once, so a slow reader skips states instead of
 * making the queue longer. Every change before that of the first key in the queue was delivered.
 */
export class ChangeQueue {
  /** Revision of the first undelivered change, by key, in ascending order. */
  private firstChanges = new Map<string, bigint>();
  private readonly wakeup = new Wakeup();
  private ended: CloudlessError | undefined;

  /**
   * Adds a changed key.
   * @param revision - Revision of the change; not lower than the revision of any earlier call.
   */
  mark(key: string, revision: bigint): void {
    if (!this.firstChanges.has(key)) this.firstChanges.set(key, revision);
    this.wakeup.notify();
  }

  /**
   * Inserts keys before all keys in the queue.
   * @param entries - Keys with the revision of their change, in ascending order; no revision is
   *   higher than that of a key in the queue.
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
   * Removes and returns the next key; waits for a key when the queue is empty.
   * @param silentAtMs - Time on the monotonic clock from which `silence` is returned, also when keys
   *   are in the queue.
   * @returns `stopped` when the signal is aborted.
   * @throws the error of {@link fail} when the queue is empty.
   */
  async next(clock: Clock, signal: StopSignal, silentAtMs: number): Promise<QueueTurn> {
    for (;;) {
      if (signal.aborted) return { kind: 'stopped' };
      if (clock.now() >= silentAtMs) return { kind: 'silence' };
      const [key] = this.firstChanges.keys();
      if (key !== undefined) {
        this.firstChanges.delete(key);
        return { kind: 'key', key };
      }
      if (this.ended !== undefined) throw this.ended;
      await this.wakeup.wait(clock, silentAtMs - clock.now(), signal);
    }
  }

  get isEmpty(): boolean {
    return this.firstChanges.size === 0;
  }

  /** Removes and returns the next keys without waiting, at most `max`. */
  take(max: number): readonly string[] {
    const keys: string[] = [];
    for (const key of this.firstChanges.keys()) {
      if (keys.length >= max) break;
      keys.push(key);
      this.firstChanges.delete(key);
    }
    return keys;
  }

  /**
   * Returns the revision up to which all changes were delivered. A key that {@link next} has returned
   * counts as delivered.
   * @param newest - Revision of the newest state whose changes were marked.
   */
  getDeliveredRevision(newest: bigint): bigint {
    const [first] = this.firstChanges.values();
    return first === undefined ? newest : first - 1n;
  }
}
