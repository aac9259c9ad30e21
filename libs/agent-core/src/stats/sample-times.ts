/** How often each container is sampled, milliseconds. */
export const SAMPLE_INTERVAL_MS = 10_000;
/** How often it is looked which are due: they are spread over the interval by so much. */
export const TICK_MS = 1_000;
/** A container's second sample comes this soon after its first, so that there are rates of it. */
export const SECOND_SAMPLE_MS = 2_000;

/**
 * When a container is sampled within the interval. Those without a cgroup all at once: one look at
 * all processes serves them.
 */
export function phaseOf(containerId: string, ownCgroup: boolean): number {
  return ownCgroup
    ? (Number.parseInt(containerId.slice(0, 8), 16) * TICK_MS) % SAMPLE_INTERVAL_MS
    : 0;
}

/**
 * When the next sample is due after one at `nowMs`: at the container's own phase, and no sooner
 * than in half an interval.
 */
export function nextSampleMs(nowMs: number, phaseMs: number): number {
  const soonestMs = nowMs + SAMPLE_INTERVAL_MS / 2;
  return Math.ceil((soonestMs - phaseMs) / SAMPLE_INTERVAL_MS) * SAMPLE_INTERVAL_MS + phaseMs;
}
