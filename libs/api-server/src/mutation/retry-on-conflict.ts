import {
  CloudlessError,
  backoffDelayMs,
  errorKindOf,
  sleep,
  type Clock,
  type Random,
} from '@cloudless/base';

/**
 * Attempts before the operation fails because of other writers; with the delays of {@link RETRY}
 * about two seconds.
 */
const MAX_ATTEMPTS = 16;
/**
 * The first delays give a controller time to finish its pass; the cap keeps all attempts well
 * within the deadline of a call.
 */
const RETRY = { firstMs: 5, maxMs: 250, jitter: 0.5 } as const;

export interface ConflictRetry {
  readonly clock: Clock;
  readonly random: Random;
  /** The changed object in the error message: `workload "default/web"`. */
  readonly subject: string;
}

/**
 * Runs an attempt to read, decide and commit, and repeats it after a store conflict. A failed
 * commit returns only when the view contains the conflicting change, so the next attempt may follow
 * at once; later attempts wait with growing delays.
 * @throws kind `unavailable` after {@link MAX_ATTEMPTS} conflicts; nothing was written then.
 */
export async function retryOnConflict<Result>(
  retry: ConflictRetry,
  attempt: () => Promise<Result>,
): Promise<Result> {
  const { clock, random, subject } = retry;
  for (let count = 1; ; count += 1) {
    try {
      return await attempt();
    } catch (reason) {
      if (!isStoreConflict(reason)) throw reason;
      if (count >= MAX_ATTEMPTS) {
        const message = `${subject} is being changed by other writers: nothing was written after ${count} attempts; try again later`;
        throw new CloudlessError('unavailable', message, { cause: reason });
      }
      const delayMs = backoffDelayMs(RETRY, count - 1, random);
      if (delayMs > 0) await sleep(clock, delayMs);
    }
  }
}

/**
 * A conflict with the generation that a client expects is not retried: the client must resolve it.
 */
function isStoreConflict(reason: unknown): boolean {
  return errorKindOf(reason) === 'conflict' && reason instanceof Error && 'changedAt' in reason;
}
