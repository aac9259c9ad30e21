/** The rollout limits of a spec. Whole, non-negative numbers of replicas. */
export interface RolloutLimitsSpec {
  /** The wanted number of replicas. */
  readonly desired: number;
  /**
   * Number of replicas that may be live above `desired` during an update. Default 1; 0 means none,
   * also during moves to other nodes where `minAvailable` permits a stop.
   */
  readonly maxSurge?: number;
  /** Number of replicas that may be unavailable during an update. Absent and 0: batches of 1. */
  readonly maxUnavailable?: number;
  /**
   * Number of replicas that must stay available. Absent and 0: the default of {@link
   * resolveLimits}.
   */
  readonly minAvailable?: number;
}

/** Rollout limits with defaults filled in and clamped. */
export interface RolloutLimits {
  /** The wanted number of replicas. */
  readonly want: number;
  /**
   * The number of available replicas that no voluntary stop may go below: 0 to `want`, or more in
   * mode GLOBAL, where `min_available` also counts pinned replicas that are not available.
   */
  readonly minAvailable: number;
  /**
   * Number of replicas that may be live above `want` during an update. 0 is also about moves to
   * other nodes: see {@link stopsFirst}.
   */
  readonly maxSurge: number;
  /**
   * Most available replicas that one decision of an update stops, 1 or more; `minAvailable` may
   * allow fewer.
   */
  readonly batch: number;
  /**
   * `min_available` as the user wrote it, for texts only. Absent unless it is above the wanted
   * number of replicas, as after a scale-down.
   */
  readonly writtenMinAvailable?: number;
}

/**
 * Fills in the defaults of CLD-REQ-023: an absent or zero `minAvailable` is `desired −
 * maxUnavailable` when `maxUnavailable` is above 0, else `max(1, desired − 1)`; always clamped to
 * 0..`desired`. `minAvailable` wins over `maxUnavailable`. For `desired` 0 `minAvailable` is 0, so
 * that every replica may stop.
 * @example
 * resolveLimits({ desired: 3 }); // want 3, minAvailable 2, maxSurge 1, batch 1
 */
export function resolveLimits(spec: RolloutLimitsSpec): RolloutLimits {
  const want = Math.max(0, spec.desired);
  const maxUnavailable = Math.max(0, spec.maxUnavailable ?? 0);
  const requested = spec.minAvailable ?? 0;
  const fallback = maxUnavailable > 0 ? want - maxUnavailable : Math.max(1, want - 1);
  return {
    want,
    minAvailable: Math.min(want, Math.max(0, requested > 0 ? requested : fallback)),
    maxSurge: Math.max(0, spec.maxSurge ?? DEFAULT_MAX_SURGE),
    batch: Math.max(1, maxUnavailable),
    ...(requested > want ? { writtenMinAvailable: requested } : {}),
  };
}

/** An update creates one replica before it stops one, unless the user sets `max_surge`. */
const DEFAULT_MAX_SURGE = 1;

/**
 * Explains limits that allow no step of a rolling update: no replica may be created above the
 * wanted count, and none may be stopped.
 * @returns The text for the user; undefined when a step is possible, or nothing is wanted.
 */
export function findImpossibleLimits(spec: RolloutLimitsSpec): string | undefined {
  return describeImpossibleLimits(resolveLimits(spec));
}

/** As {@link findImpossibleLimits}, for resolved limits. Scaling can lead to such limits later. */
export function describeImpossibleLimits(limits: RolloutLimits): string | undefined {
  const { want, minAvailable, maxSurge, writtenMinAvailable } = limits;
  if (want === 0 || maxSurge > 0 || minAvailable < want) return undefined;
  return writtenMinAvailable === undefined
    ? `max_surge ${maxSurge} and min_available ${minAvailable} of ${want} leave no possible move`
    : `max_surge ${maxSurge} and min_available ${writtenMinAvailable}, which counts as ${minAvailable} of ${want}, leave no possible move`;
}

/**
 * Returns true when a replica that has to leave its node ends before its replacement is created,
 * as an old replica of an update does: no surge is allowed, and `minAvailable` permits a stop while
 * all replicas are available. Otherwise the replacement is created first, so that a drain ends.
 */
export function stopsFirst({ want, minAvailable, maxSurge }: RolloutLimits): boolean {
  return maxSurge === 0 && minAvailable < want;
}

/** Result of {@link validateVoluntaryStop}. `reason` is for users. */
export type VoluntaryStop =
  | { readonly allowed: true }
  | {
      readonly allowed: false;
      readonly available: number;
      readonly minAvailable: number;
      readonly reason: string;
    };

/**
 * Checks a voluntary stop of an available replica: by an update, a drain, a preemption or a
 * scale-down. Unready replicas may always stop. The rule applies to stops only, and never refuses
 * the creation or the update of a workload.
 * @param available - Available replicas *after* the stop.
 * @param minAvailable - The resolved limit.
 */
export function validateVoluntaryStop(available: number, minAvailable: number): VoluntaryStop {
  if (available >= minAvailable) return { allowed: true };
  return {
    allowed: false,
    available,
    minAvailable,
    reason: `the stop would leave ${available} available, below min_available ${minAvailable}`,
  };
}
