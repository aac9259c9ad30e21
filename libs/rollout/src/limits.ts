/** What a user asks of a rolling update; counts of replicas, whole and not negative. */
export interface RolloutLimitsSpec {
  /** How many replicas the workload shall have. */
  readonly desired: number;
  /** How many more may live during an update. Absent means 1; 0 means none. */
  readonly maxSurge?: number;
  /** How many may be missing during an update. Absent and 0 mean the same: batches of 1. */
  readonly maxUnavailable?: number;
  /** How many must stay ready. Absent and 0 mean the default, see {@link resolveLimits}. */
  readonly minAvailable?: number;
}

/** The limits a decision works with, defaults filled in and clamped. */
export interface RolloutLimits {
  readonly want: number;
  /** The floor: freshly ready replicas that no voluntary stop may go below; 0 to `want`. */
  readonly minAvailable: number;
  readonly maxSurge: number;
  /**
   * Most ready replicas that one decision takes away for an update, 1 or more; the floor may allow
   * fewer.
   */
  readonly batch: number;
}

/**
 * Fills in the defaults of CLD-REQ-023: an absent or zero `minAvailable` is `desired −
 * maxUnavailable` when that is above 0, else `max(1, desired − 1)`; always clamped to 0..`desired`.
 * `minAvailable` wins over `maxUnavailable`. Scaled to 0 the floor is 0, so that everything may
 * stop.
 */
export function resolveLimits(spec: RolloutLimitsSpec): RolloutLimits {
  const want = Math.max(0, spec.desired);
  const maxUnavailable = Math.max(0, spec.maxUnavailable ?? 0);
  const asked = spec.minAvailable ?? 0;
  const fallback = maxUnavailable > 0 ? want - maxUnavailable : Math.max(1, want - 1);
  return {
    want,
    minAvailable: Math.min(want, Math.max(0, asked > 0 ? asked : fallback)),
    maxSurge: Math.max(0, spec.maxSurge ?? DEFAULT_MAX_SURGE),
    batch: Math.max(1, maxUnavailable),
  };
}

/** An update adds one before it takes one, unless the user says otherwise. */
const DEFAULT_MAX_SURGE = 1;

/**
 * Says why limits leave a rolling update no move at all: nothing may be added first, and nothing
 * may be taken first.
 * @returns The text to show the user, or undefined when there is a move (also when nothing is
 *   wanted).
 */
export function impossibleLimits(spec: RolloutLimitsSpec): string | undefined {
  return describeImpossible(resolveLimits(spec));
}

/** The same for limits already resolved; scaling can bring such limits about later. */
export function describeImpossible({
  want,
  minAvailable,
  maxSurge,
}: RolloutLimits): string | undefined {
  if (want === 0 || maxSurge > 0 || minAvailable < want) return undefined;
  return `max_surge ${maxSurge} and min_available ${minAvailable} of ${want} leave no possible move`;
}

/** Whether a stop may go ahead, with the reason when not. */
export type VoluntaryStop =
  | { readonly allowed: true }
  | {
      readonly allowed: false;
      readonly ready: number;
      readonly minAvailable: number;
      readonly reason: string;
    };

/**
 * The rule for every stop of a ready replica that nobody is forced to make: by an update, a drain,
 * a preemption, a scale-down. Unready replicas need no permission. It is a rule for plans: creating
 * and updating a workload is never refused for it.
 * @param ready - Freshly ready replicas *after* the stop.
 * @param minAvailable - The floor, resolved.
 */
export function validateVoluntaryStop(ready: number, minAvailable: number): VoluntaryStop {
  if (ready >= minAvailable) return { allowed: true };
  return {
    allowed: false,
    ready,
    minAvailable,
    reason: `the stop would leave ${ready} ready, below min_available ${minAvailable}`,
  };
}
