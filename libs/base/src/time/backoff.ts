import type { Random } from '../random.js';

/** Policy for growing, bounded retry delays. */
export interface BackoffPolicy {
  /** Delay after the first failure, milliseconds. */
  readonly firstMs: number;
  /** Upper bound of every delay, milliseconds. */
  readonly maxMs: number;
  /** Multiplier for each further failure. Default: 2. */
  readonly factor?: number;
  /**
   * Share of each delay that is random, 0 to 1, so that many clients do not retry at the same
   * moment. Default: 0.
   */
  readonly jitter?: number;
}

/**
 * Returns the delay before the next attempt.
 * @param failures - Number of consecutive failures. The delay for 0 failures is 0.
 * @param random - Without it the delay has no jitter, whatever the policy says.
 * @returns Milliseconds; with jitter j uniform in ((1 − j)·delay, delay].
 * @example
 * ```ts
 * backoffDelayMs({ firstMs: 100, maxMs: 1_000 }, 3); // 400
 * ```
 */
export function backoffDelayMs(policy: BackoffPolicy, failures: number, random?: Random): number {
  if (failures <= 0) return 0;
  const unjittered =
    policy.firstMs * Math.pow(policy.factor ?? 2, Math.min(failures - 1, MAX_EXPONENT));
  const delay = Math.min(policy.maxMs, unjittered);
  return random === undefined ? delay : delay * (1 - (policy.jitter ?? 0) * random.next());
}

/** Largest exponent: a larger exponent could give Infinity, and `maxMs` is reached long before. */
const MAX_EXPONENT = 60;
