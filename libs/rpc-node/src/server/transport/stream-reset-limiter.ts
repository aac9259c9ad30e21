import type { Clock } from '@cloudless/base';
import type { RpcLimits } from '../options.js';

/** Token bucket that limits the streams that one HTTP/2 session resets. */
export class StreamResetLimiter {
  private tokens: number;
  /** Time of the last refill, in milliseconds of the clock. */
  private filledAt: number;

  constructor(
    private readonly clock: Clock,
    private readonly limits: Pick<RpcLimits, 'resetBurst' | 'resetsPerSecond'>,
  ) {
    this.tokens = limits.resetBurst;
    this.filledAt = clock.now();
  }

  /**
   * Records a reset.
   * @returns False when the resets exceed the limit.
   */
  tryReset(): boolean {
    const { resetBurst, resetsPerSecond } = this.limits;
    const now = this.clock.now();
    this.tokens =
      Math.min(resetBurst, this.tokens + ((now - this.filledAt) / 1_000) * resetsPerSecond) - 1;
    this.filledAt = now;
    return this.tokens >= 0;
  }
}
