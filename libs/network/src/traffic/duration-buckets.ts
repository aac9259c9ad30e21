/** Bounds per doubling: an estimate from the counts is off by at most a fifth. */
const BOUNDS_PER_DOUBLING = 4;
/** Number of counts of durations; the last is for 2^18 ms, over 4 minutes, and more. */
export const DURATION_BUCKETS = 18 * BOUNDS_PER_DOUBLING + 1;

/** Returns the index of the count of a duration: the first whose bound, 2^(index/4) ms, is larger. */
export function toDurationBucket(durationMs: number): number {
  if (!(durationMs >= 1)) return 0;
  const index = Math.floor(Math.log2(durationMs) * BOUNDS_PER_DOUBLING) + 1;
  return Math.min(index, DURATION_BUCKETS - 1);
}

/**
 * Estimates a quantile of durations from their counts.
 * @param counts - Number of durations by {@link toDurationBucket}.
 * @param quantile - 0 to 1.
 * @returns Milliseconds, interpolated within a bucket; undefined without durations.
 */
export function estimateQuantile(counts: readonly number[], quantile: number): number | undefined {
  const total = counts.reduce((sum, count) => sum + count, 0);
  if (total <= 0) return undefined;
  let rank = quantile * total;
  for (const [index, count] of counts.entries()) {
    if (count > 0 && rank <= count) {
      const lower = index === 0 ? 0 : boundOf(index - 1);
      return lower + (boundOf(index) - lower) * Math.max(0, rank / count);
    }
    rank -= count;
  }
  return boundOf(counts.length - 1);
}

function boundOf(index: number): number {
  return 2 ** (index / BOUNDS_PER_DOUBLING);
}
