/** Health of an endpoint as its checks show. */
export interface CheckedHealth {
  readonly status: 'unknown' | 'healthy' | 'unhealthy';
  /** Successful checks in a row. */
  readonly consecutiveSuccesses: number;
  /** Failed checks in a row. */
  readonly consecutiveFailures: number;
  /** Cause of the last failure. Empty: none since the endpoint is healthy. */
  readonly reason: string;
}

/** Numbers of checks that change the health of an endpoint, each at least 1. */
export interface HealthThresholds {
  /** Successful checks in a row that make an endpoint healthy. */
  readonly healthy: number;
  /** Failed checks in a row that make an endpoint unhealthy. */
  readonly unhealthy: number;
}

/** Result of one check. */
export type CheckResult =
  { readonly kind: 'succeeded' } | { readonly kind: 'failed'; readonly reason: string };

/** Health of an endpoint before its first check. */
export const UNCHECKED_HEALTH: CheckedHealth = {
  status: 'unknown',
  consecutiveSuccesses: 0,
  consecutiveFailures: 0,
  reason: '',
};

/** Largest count of checks in a row; further checks do not change the count. */
const MAX_COUNT = 2 ** 31 - 1;

/**
 * Returns the health after one more check. The first check of an endpoint decides alone when it
 * succeeds, so that a new endpoint does not wait for `healthy` intervals.
 */
export function nextHealth(
  health: CheckedHealth,
  result: CheckResult,
  thresholds: HealthThresholds,
): CheckedHealth {
  if (result.kind === 'failed') {
    const failures = Math.min(MAX_COUNT, health.consecutiveFailures + 1);
    return {
      status: failures >= thresholds.unhealthy ? 'unhealthy' : health.status,
      consecutiveSuccesses: 0,
      consecutiveFailures: failures,
      reason: result.reason,
    };
  }
  const successes = Math.min(MAX_COUNT, health.consecutiveSuccesses + 1);
  const isFirst = health.status === 'unknown' && health.consecutiveFailures === 0;
  const isHealthy = isFirst || successes >= thresholds.healthy || health.status === 'healthy';
  return {
    status: isHealthy ? 'healthy' : health.status,
    consecutiveSuccesses: successes,
    consecutiveFailures: 0,
    reason: isHealthy ? '' : health.reason,
  };
}

/**
 * Returns true when a change of the health must be reported: the status changes, or a failure has a
 * new cause. Counts alone are not reported, because each report is a write to the store.
 */
export function isReportable(before: CheckedHealth, after: CheckedHealth): boolean {
  if (before.status !== after.status) return true;
  return after.status === 'unhealthy' && before.reason !== after.reason;
}
