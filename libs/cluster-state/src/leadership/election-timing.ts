/** Time after its last renewal at which the store deletes the lease of the leader, milliseconds. */
export const LEADER_LEASE_MS = 2_000;
/**
 * Interval of the renewals, milliseconds. One renewal without an answer, or several that fail at
 * once, leave time for another attempt before the leader stops acting.
 */
export const RENEWAL_INTERVAL_MS = 500;
/**
 * A leader acts at most so long after it sent the last renewal that the store answered,
 * milliseconds. The rest of the lease, 500 ms, is the margin for clocks that run at different
 * speeds, and for what the leader had begun before.
 */
export const ACT_AFTER_RENEWAL_MS = 1_500;
/** Delay before a renewal that failed is sent again, milliseconds. */
export const RENEWAL_RETRY_MS = 100;
/** A coordinator that stepped down does not campaign for so long, milliseconds. */
export const STEP_DOWN_PAUSE_MS = 2_000;
/**
 * Upper bound of the random delay before a campaign, milliseconds. Long enough that one of several
 * followers is through (two round trips) before most others begin. The next in line does not wait.
 */
export const CAMPAIGN_JITTER_MS = 100;
/**
 * Interval at which a follower that sees a leader reads the lease record from the store,
 * milliseconds, in case the watch has lost its deletion.
 */
export const VACANCY_CHECK_MS = 2_000;
/** Longest wait of a candidate for its view to show the newest revision, milliseconds. */
export const CATCH_UP_MS = 1_000;
/**
 * Longest wait for an answer to a call of the election, except for renewals, milliseconds. A
 * campaign with a slower call could not be won in time.
 */
export const CALL_LIMIT_MS = 1_000;
