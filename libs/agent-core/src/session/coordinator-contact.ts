import type { Clock } from '@cloudless/base';

/**
 * Time of the last confirmed contact with a coordinator: the send time of the newest ping that was
 * answered in an admitted session. It is never later than the time at which the coordinator renewed
 * the lease of this node. Leases of exclusive replicas are derived from it.
 */
export class CoordinatorContact {
  private lastMs: number | undefined;
  private readonly listeners = new Set<() => void>();

  constructor(private readonly clock: Pick<Clock, 'now'>) {}

  /**
   * Records that a ping sent at `sentAtMs` (monotonic clock) was answered in an admitted session.
   */
  confirm(sentAtMs: number): void {
    if (this.lastMs !== undefined && sentAtMs <= this.lastMs) return;
    this.lastMs = sentAtMs;
    for (const listener of this.listeners) listener();
  }

  /**
   * Remaining milliseconds of a time span that began with the last contact; 0 when the span has
   * passed or there was no contact yet.
   */
  remainingMs(spanMs: number): number {
    return this.lastMs === undefined ? 0 : Math.max(0, this.lastMs + spanMs - this.clock.now());
  }

  /** Calls `listener` at each new contact. @returns A function that ends the subscription. */
  subscribe(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }
}
