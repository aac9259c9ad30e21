/** An attempt of a write: when it was sent and answered, and whether it was acknowledged. */
export interface TimedAttempt {
  /** Times of `performance.now()`. */
  readonly sentAtMs: number;
  readonly endedAtMs: number;
  /** Undefined: acknowledged. */
  readonly code: number | undefined;
}

/**
 * Returns the time from the loss of a leader until the next leader acknowledged a write,
 * milliseconds; undefined when it acknowledged none. Writes that were sent after the loss show the
 * next leader, and all that were acknowledged after the last answer of the lost one: a write that
 * waits behind others of its user may have been sent long before.
 * @param silentFromMs - As in `FaultResult`.
 */
export function findNextLeader(
  attempts: readonly TimedAttempt[],
  leaderLostAtMs: number,
  silentFromMs = Infinity,
): number | undefined {
  const ends = attempts
    .filter(
      ({ sentAtMs, endedAtMs, code }) =>
        code === undefined && (sentAtMs >= leaderLostAtMs || endedAtMs >= silentFromMs),
    )
    .map(({ endedAtMs }) => endedAtMs - leaderLostAtMs);
  return ends.length === 0 ? undefined : Math.min(...ends);
}

/** Returns the longest time between two acknowledgements from a moment on, milliseconds. */
export function findLongestPause(attempts: readonly TimedAttempt[], fromMs: number): number {
  const ends = attempts
    .filter(({ code }) => code === undefined)
    .map(({ endedAtMs }) => endedAtMs)
    .sort((a, b) => a - b);
  return ends.reduce(
    (longest, atMs, index) => Math.max(longest, atMs - (ends[index - 1] ?? fromMs)),
    0,
  );
}

/** Counts the writes that were sent and acknowledged between two moments. */
export const countWritesWithin = (
  attempts: readonly TimedAttempt[],
  { fromMs, toMs }: { readonly fromMs: number; readonly toMs: number },
): number =>
  attempts.filter(
    ({ sentAtMs, endedAtMs, code }) =>
      code === undefined && sentAtMs >= fromMs && endedAtMs <= toMs,
  ).length;
