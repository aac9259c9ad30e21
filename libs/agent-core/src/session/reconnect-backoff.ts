import { durationMs, type Duration } from '@bufbuild/protobuf/wkt';
import { backoffDelayMs, type BackoffPolicy, type Random } from '@cloudless/base';
import type { Welcome } from '@cloudless/api';

/**
 * First delay: short enough that a restart of the coordinator ends well within the lease of 3 s.
 */
const FIRST_MS = 50;
/** Longest delay until a Welcome sets another one. */
const DEFAULT_MAX_MS = 1_000;
const JITTER = 0.5;

/**
 * Delay before an agent dials again. The coordinator sets the bounds, as it knows the number of
 * agents.
 */
export class ReconnectBackoff {
  private spreadMs = FIRST_MS;
  private maxMs = DEFAULT_MAX_MS;
  private failures = 0;

  constructor(private readonly random: Random) {}

  /** Applies the bounds of a Welcome; absent ones stay as they are. */
  applyWelcome({
    reconnectSpread,
    reconnectPauseMax,
  }: Pick<Welcome, 'reconnectSpread' | 'reconnectPauseMax'>): void {
    this.spreadMs = Math.max(FIRST_MS, toMs(reconnectSpread) ?? this.spreadMs);
    this.maxMs = Math.max(FIRST_MS, toMs(reconnectPauseMax) ?? this.maxMs);
  }

  /**
   * Delay after an established session has ended, milliseconds: random within the spread, as all
   * other agents may dial at the same time.
   */
  delayAfterSession(): number {
    this.failures = 1;
    return this.spreadMs * (1 - this.random.next());
  }

  /**
   * Delay after an attempt without a session, milliseconds: grows exponentially, half of it random.
   */
  delayAfterFailure(): number {
    this.failures += 1;
    const policy: BackoffPolicy = { firstMs: FIRST_MS, maxMs: this.maxMs, jitter: JITTER };
    return backoffDelayMs(policy, this.failures, this.random);
  }
}

function toMs(duration: Duration | undefined): number | undefined {
  return duration === undefined ? undefined : durationMs(duration);
}
