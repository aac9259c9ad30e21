import { DEFAULTS } from '@cloudless/api';
import type { StopDelays } from './replica-state.js';
import type { ReplicaTarget } from './replica-target.js';

/**
 * Returns the delays of a stop: from the order, else from the spec, else the API defaults. A spec
 * has no wait for network proxies: only coordinators know whether a service selects the replica.
 */
export function resolveStopDelays(
  target: ReplicaTarget | undefined,
  ordered: Partial<StopDelays>,
): StopDelays {
  return {
    endpointsGoneMs: ordered.endpointsGoneMs ?? 0,
    preStopMs: ordered.preStopMs ?? target?.preStopMs ?? 0,
    graceMs: ordered.graceMs ?? target?.graceMs ?? DEFAULTS.terminationGraceMs,
  };
}

/** Returns the longest time from a stop order to the stop of the container, milliseconds. */
export function toLeaveMs({ endpointsGoneMs, preStopMs }: StopDelays): number {
  return endpointsGoneMs + preStopMs;
}
