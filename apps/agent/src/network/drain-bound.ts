import type { Clock } from '@cloudless/base';

/** Ends a proxy within the shortest time of all requests to end it. */
export class DrainBound {
  private endsAtMs = Infinity;

  /**
   * @param drain - Resolves when all connections have ended, or after `withinMs` milliseconds. Called
   *   again for each shorter time.
   * @param onEnd - Called when any of the drains has resolved, perhaps several times.
   */
  constructor(
    private readonly clock: Pick<Clock, 'now'>,
    private readonly drain: (withinMs: number) => Promise<unknown>,
    private readonly onEnd: () => void,
  ) {}

  /** Ends within `withinMs` milliseconds. A longer time than before changes nothing. */
  stop(withinMs: number): void {
    const endsAtMs = this.clock.now() + withinMs;
    if (endsAtMs >= this.endsAtMs) return;
    this.endsAtMs = endsAtMs;
    void this.drain(withinMs).finally(this.onEnd);
  }
}
