import type { Clock } from '@cloudless/base';

/**
 * Time of the last confirmed contact with a coordinator: the send time of the newest ping that was
 * answered in an admitted session. This time is never later than the time at which the coordinator
 * renewed the lease of this node, so the leases of exclusive replicas are computed from this time.
 */
export class CoordinatorContact {
  private lastContactMs: number | undefined;
  private readonly listeners = new Set<() => void>();

  constructor(private readonly clock: Pick<Clock, 'now'>) {}

  /**
   * Records that a ping sent at `sentAtMs` (monotonic clock) was answered in an admitted session.
   */
  confirm(sentAtMs: number): void {
    if (this.lastContactMs !== undefined && sentAtMs <= this.lastContactMs) return;
    this.lastContactMs = sentAtMs;
    for (const listener of this.listeners) listener();
  }

  /**
   * Remaining milliseconds of a time span that began with the last contact; 0 when the span has
   * passed or there was no contact yet.
   */
  remainingMs(spanMs: number): number {
    return this.lastContactMs === undefined
      ? 0
      : Math.max(0, this.lastContactMs + spanMs - this.clock.now());
  }

  /**
   * Calls `listener` at each new contact.
   * @returns A function that ends the subscription.
   */
  subscribe(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }
}
