import {
  CloudlessError,
  backoffDelayMs,
  errorKindOf,
  sleep,
  type Clock,
  type Random,
} from '@cloudless/base';

/**
 * Attempts before the operation fails. With the delays of {@link RETRY} they take about two
 * seconds.
 */
const MAX_ATTEMPTS = 16;
/**
 * The first delays give a controller time to finish its pass; the cap keeps all attempts well
 * within the deadline of a call.
 */
const RETRY = { firstMs: 5, maxMs: 250, jitter: 0.5 } as const;

/** Parameters of {@link retryOnConflict}. */
export interface ConflictRetry {
  readonly clock: Clock;
  readonly random: Random;
  /** The changed object in the error message: `workload "default/web"`. */
  readonly subject: string;
}

/**
 * Calls `attempt`, and calls it again when it fails because of a store conflict. A commit with a
 * conflict fails only once the view contains the conflicting change, so the second attempt follows
 * at once; later attempts follow after growing delays.
 * @param attempt - Reads, decides and commits. Must write nothing when its commit fails.
 * @throws kind `unavailable` after {@link MAX_ATTEMPTS} conflicts; nothing was written then. Other
 *   errors of `attempt` are not retried.
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
 * Returns true for a conflict of a commit. A conflict with the generation that a client expects is
 * not retried: the client must read the workload again.
 */
function isStoreConflict(reason: unknown): boolean {
  return errorKindOf(reason) === 'conflict' && reason instanceof Error && 'changedAt' in reason;
}
