import type { Message } from '@bufbuild/protobuf';
import { durationMs, type Duration } from '@bufbuild/protobuf/wkt';
import { backoffDelayMs, type BackoffPolicy, type Random } from '@cloudless/base';
import type { ReconnectTimes } from '@cloudless/api';

/**
 * First delay: short enough that a restart of the coordinator ends well within the lease of 3 s.
 */
const FIRST_MS = 50;
/** Longest delay until a Welcome sets another maximum. */
const DEFAULT_MAX_MS = 1_000;
/** Random part of the delay after a failure. */
const JITTER = 0.5;

/**
 * Delay before an agent dials again. The coordinator sets the bounds by the number of its agents.
 */
export class ReconnectBackoff {
  private spreadMs = FIRST_MS;
  private maxMs = DEFAULT_MAX_MS;
  private leaderLossMs = FIRST_MS;
  private failures = 0;

  constructor(private readonly random: Random) {}

  /** Applies the times that a Welcome or ReconnectTimes sets. A time that is absent stays. */
  applyTimes({
    reconnectSpread,
    reconnectPauseMax,
    leaderLossSpread,
  }: Omit<ReconnectTimes, keyof Message>): void {
    this.spreadMs = Math.max(FIRST_MS, toMs(reconnectSpread) ?? this.spreadMs);
    this.maxMs = Math.max(FIRST_MS, toMs(reconnectPauseMax) ?? this.maxMs);
    this.leaderLossMs = Math.max(FIRST_MS, toMs(leaderLossSpread) ?? this.leaderLossMs);
  }

  /**
   * Returns the delay after an established session has ended, milliseconds. The delay is random
   * within the spread, because all other agents may dial at the same time.
   */
  delayAfterSession(): number {
    this.failures = 1;
    return this.spreadMs * (1 - this.random.next());
  }

  /**
   * Returns the delay after an attempt without a session, milliseconds. The delay grows
   * exponentially; half of the delay is random.
   */
  delayAfterFailure(): number {
    this.failures += 1;
    const policy: BackoffPolicy = { firstMs: FIRST_MS, maxMs: this.maxMs, jitter: JITTER };
    return backoffDelayMs(policy, this.failures, this.random);
  }

  /** Longest delay between two dials, milliseconds; the coordinator sets it by its nodes. */
  get maxPauseMs(): number {
    return this.maxMs;
  }

  /**
   * Returns the delay before the first dial of another coordinator after the loss of the leader,
   * milliseconds. The others elect the next leader meanwhile, and all other agents dial as well.
   */
  delayAfterLeaderLoss(): number {
    return this.leaderLossMs * this.random.next();
  }

  /**
   * Returns the delay before the next address of a round, or before the leader that another
   * coordinator has named, milliseconds: the agent has waited before the round.
   */
  delayBetweenAddresses(): number {
    return FIRST_MS * this.random.next();
  }

  /**
   * Returns the delay after all coordinators refused this agent: `maxMs`, half of which is random.
   */
  delayAfterRefusal(maxMs: number): number {
    return maxMs * (1 - JITTER * this.random.next());
  }
}

function toMs(duration: Duration | undefined): number | undefined {
  return duration === undefined ? undefined : durationMs(duration);
}
