import type { Random } from './random.js';

/** Growing, bounded delays. */
export interface BackoffPolicy {
  /** Delay after the first failure, milliseconds. */
  readonly firstMs: number;
  /** Never longer than this, milliseconds. */
  readonly maxMs: number;
  /** How much longer after each failure. Default 2. */
  readonly factor?: number;
  /**
   * Share of each delay that is random, 0 to 1, so that many clients do not come back together.
   * Default 0.
   */
  readonly jitter?: number;
}

/**
 * The delay before the next attempt.
 * @param failures - How many attempts failed in a row, 1 or more; 0 gives 0.
 * @param random - Needed only when the policy has a jitter.
 * @returns Milliseconds; with jitter j uniform in ((1 − j)·delay, delay].
 */
export function backoffDelayMs(policy: BackoffPolicy, failures: number, random?: Random): number {
  if (failures <= 0) return 0;
  const grown = policy.firstMs * Math.pow(policy.factor ?? 2, Math.min(failures - 1, MAX_EXPONENT));
  const delay = Math.min(policy.maxMs, grown);
  return random === undefined ? delay : delay * (1 - (policy.jitter ?? 0) * random.next());
}

/** Beyond this the power only risks becoming Infinity; `maxMs` has long been reached. */
const MAX_EXPONENT = 60;
