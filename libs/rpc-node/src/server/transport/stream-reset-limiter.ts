import type { Clock } from '@cloudless/base';
import type { RpcLimits } from '../options.js';

/** Token bucket for the streams that one client resets. */
export class StreamResetLimiter {
  private tokens: number;
  private filledAt: number;

  constructor(
    private readonly clock: Clock,
    private readonly limits: Pick<RpcLimits, 'resetBurst' | 'resetsPerSecond'>,
  ) {
    this.tokens = limits.resetBurst;
    this.filledAt = clock.now();
  }

  /** Takes one token. @returns false when the bucket is empty. */
  tryReset(): boolean {
    const { resetBurst, resetsPerSecond } = this.limits;
    const now = this.clock.now();
    this.tokens =
      Math.min(resetBurst, this.tokens + ((now - this.filledAt) / 1_000) * resetsPerSecond) - 1;
    this.filledAt = now;
    return this.tokens >= 0;
  }
}
