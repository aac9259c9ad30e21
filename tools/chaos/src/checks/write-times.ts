/** An attempt of a write: when it was sent and answered, and whether it was acknowledged. */
export interface TimedAttempt {
  readonly sentAtMs: number;
  readonly endedAtMs: number;
  /** Undefined: acknowledged. */
  readonly code: number | undefined;
}

/**
 * Returns the time from a moment until a write was acknowledged that was sent after that moment,
 * milliseconds; undefined when there was none.
 */
export function findFirstWriteAfter(
  attempts: readonly TimedAttempt[],
  atMs: number,
): number | undefined {
  const ends = attempts
    .filter(({ sentAtMs, code }) => code === undefined && sentAtMs >= atMs)
    .map(({ endedAtMs }) => endedAtMs - atMs);
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
