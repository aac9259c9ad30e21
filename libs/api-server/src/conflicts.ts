import {
  CloudlessError,
  backoffDelayMs,
  errorKindOf,
  sleep,
  type Clock,
  type Random,
} from '@cloudless/base';

/**
 * Conflicts in a row, over about two seconds, after which other writers do not let this one
 * through.
 */
const MAX_ATTEMPTS = 16;
/**
 * Long enough for a controller to finish its pass; the cap keeps all attempts well within the
 * deadline of a call.
 */
const RETRY = { firstMs: 5, maxMs: 250, jitter: 0.5 } as const;

/** Needs of {@link withoutConflict}. */
export interface ConflictRetry {
  readonly clock: Clock;
  readonly random: Random;
  /** Names the object that is changed, for people: `workload "default/web"`. */
  readonly what: string;
}

/**
 * Runs an attempt to read, decide and commit until it meets no conflict. A commit that meets one
 * has waited until the view shows what it met: the next attempt follows at once, those after it
 * with growing delays.
 * @throws kind `unavailable` when it is still in conflict after {@link MAX_ATTEMPTS} attempts:
 *   nothing was written.
 */
export async function withoutConflict<Result>(
  retry: ConflictRetry,
  attempt: () => Promise<Result>,
): Promise<Result> {
  const { clock, random, what } = retry;
  for (let count = 1; ; count += 1) {
    try {
      return await attempt();
    } catch (reason) {
      if (!isStoreConflict(reason)) throw reason;
      if (count >= MAX_ATTEMPTS) {
        const message = `${what} is being changed by others all the time: nothing was written after ${count} attempts; try again later`;
        throw new CloudlessError('unavailable', message, { cause: reason });
      }
      const delayMs = backoffDelayMs(RETRY, count - 1, random);
      if (delayMs > 0) await sleep(clock, delayMs);
    }
  }
}

/** A generation that the caller expected and that is not there is for the caller to resolve. */
function isStoreConflict(reason: unknown): boolean {
  return errorKindOf(reason) === 'conflict' && reason instanceof Error && 'changedAt' in reason;
}
