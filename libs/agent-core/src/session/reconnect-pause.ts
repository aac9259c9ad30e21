import { durationMs, type Duration } from '@bufbuild/protobuf/wkt';
import { backoffDelayMs, type BackoffPolicy, type Random } from '@cloudless/base';
import type { Welcome } from '@cloudless/api';

/** Short at first, so that a coordinator's restart is bridged well inside the lease of 3 s. */
const FIRST_MS = 50;
/** Until a Welcome says otherwise. */
const DEFAULT_MAX_MS = 1_000;
const JITTER = 0.5;

/**
 * How long an agent waits before it dials again. The coordinator sets the spans, as it knows how
 * many agents there are.
 */
export class ReconnectPause {
  private spreadMs = FIRST_MS;
  private maxMs = DEFAULT_MAX_MS;
  private failures = 0;

  constructor(private readonly random: Random) {}

  /** Takes the spans of a Welcome; what it does not say stays as it was. */
  use({
    reconnectSpread,
    reconnectPauseMax,
  }: Pick<Welcome, 'reconnectSpread' | 'reconnectPauseMax'>): void {
    this.spreadMs = Math.max(FIRST_MS, msOf(reconnectSpread) ?? this.spreadMs);
    this.maxMs = Math.max(FIRST_MS, msOf(reconnectPauseMax) ?? this.maxMs);
  }

  /**
   * A session that had been welcomed has ended: a time within the spread, at random, as all others
   * may dial now too.
   */
  afterSession(): number {
    this.failures = 1;
    return this.spreadMs * (1 - this.random.next());
  }

  /** No session came about: ever longer, with half of it at random. */
  afterFailure(): number {
    this.failures += 1;
    const policy: BackoffPolicy = { firstMs: FIRST_MS, maxMs: this.maxMs, jitter: JITTER };
    return backoffDelayMs(policy, this.failures, this.random);
  }
}

function msOf(duration: Duration | undefined): number | undefined {
  return duration === undefined ? undefined : durationMs(duration);
}
