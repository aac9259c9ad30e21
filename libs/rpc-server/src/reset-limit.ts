import type { Clock } from '@cloudless/base';
import type { RpcLimits } from './options.js';

/** Counts the streams that one client resets: a bucket that holds a burst, and refills. */
export class ResetLimit {
  private tokens: number;
  private filledAt: number;

  constructor(
    private readonly clock: Clock,
    private readonly limits: Pick<RpcLimits, 'resetBurst' | 'resetsPerSecond'>,
  ) {
    this.tokens = limits.resetBurst;
    this.filledAt = clock.now();
  }

  /** Counts one. @returns false when that was one too many. */
  allows(): boolean {
    const { resetBurst, resetsPerSecond } = this.limits;
    const now = this.clock.now();
    this.tokens =
      Math.min(resetBurst, this.tokens + ((now - this.filledAt) / 1_000) * resetsPerSecond) - 1;
    this.filledAt = now;
    return this.tokens >= 0;
  }
}
