import type { Clock } from '@cloudless/base';

/**
 * When a coordinator last counted this node as alive, as far as the agent can know: the time at
 * which the newest answered ping was sent, so never later than the coordinator's own count. What
 * exclusive replicas live by.
 */
export class Contact {
  private lastMs: number | undefined;
  private readonly listeners = new Set<() => void>();

  constructor(private readonly clock: Pick<Clock, 'now'>) {}

  /** A ping that was sent then has been answered, in a session that was admitted. */
  confirmed(sentAtMs: number): void {
    if (this.lastMs !== undefined && sentAtMs <= this.lastMs) return;
    this.lastMs = sentAtMs;
    for (const listener of this.listeners) listener();
  }

  /**
   * What is left of a span that began with the last contact, milliseconds; 0 when it is over, or
   * there was none yet.
   */
  remainingMs(spanMs: number): number {
    return this.lastMs === undefined ? 0 : Math.max(0, this.lastMs + spanMs - this.clock.now());
  }

  /** Called at each new contact. @returns Ends the subscription. */
  listen(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }
}
