import { errorKindOf } from '@cloudless/base';

/**
 * Runs an attempt to read, decide and commit until it meets no conflict. A commit that meets one has waited until the view
 * shows what it met, so that the next attempt decides on that.
 * @param maxAttempts - After so many conflicts the last one is thrown: somebody else is writing the same all the time.
 */
export async function withoutConflict<Result>(maxAttempts: number, attempt: () => Promise<Result>): Promise<Result> {
  for (let count = 1; ; count += 1) {
    try {
      return await attempt();
    } catch (reason) {
      if (!isStoreConflict(reason) || count >= maxAttempts) throw reason;
    }
  }
}

/** A generation that the caller expected and that is not there is for the caller to resolve. */
function isStoreConflict(reason: unknown): boolean {
  return errorKindOf(reason) === 'conflict' && reason instanceof Error && 'changedAt' in reason;
}
