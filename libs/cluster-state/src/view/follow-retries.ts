import {
  backoffDelayMs,
  errorFields,
  errorKindOf,
  sleep,
  type Clock,
  type ErrorKind,
  type Log,
  type Random,
  type StopSignal,
} from '@cloudless/base';
import type { Revision } from '@cloudless/state-store';

/** Kinds of failures after which the store may serve the view again. */
const TRANSIENT: ReadonlySet<ErrorKind> = new Set([
  'unavailable',
  'deadline',
  'exhausted',
  'compacted',
  'unauthenticated',
  'denied',
]);
/** Long enough that a store that is down is left alone, short enough to be back soon after it. */
const POLICY = { firstMs: 100, maxMs: 2_000, jitter: 0.5 };

/** Decides whether and when a view that could not follow its store tries again. */
export class FollowRetries {
  private failures = 0;

  constructor(
    private readonly clock: Clock,
    private readonly random: Random,
    private readonly log: Log,
  ) {}

  /** Resets the back-off: the store has delivered changes. */
  reportSuccess(): void {
    this.failures = 0;
  }

  /**
   * Waits for the next attempt.
   * @returns False when a further attempt would fail in the same way.
   */
  async waitAfterFailure(
    reason: unknown,
    revision: Revision,
    signal: StopSignal,
  ): Promise<boolean> {
    if (!TRANSIENT.has(errorKindOf(reason))) return false;
    this.failures += 1;
    const delayMs = backoffDelayMs(POLICY, this.failures, this.random);
    this.log.warn('view does not follow the store, trying again', {
      revision,
      attempt: this.failures,
      delayMs: Math.round(delayMs),
      ...errorFields(reason),
    });
    await sleep(this.clock, delayMs, signal).catch(() => undefined);
    return true;
  }
}
