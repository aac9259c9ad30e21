/** How often each container is sampled, milliseconds. */
export const SAMPLE_INTERVAL_MS = 10_000;
/**
 * Interval of the sampling loop. Samples are spread over {@link SAMPLE_INTERVAL_MS} in steps of
 * this size.
 */
export const TICK_MS = 1_000;
/** Delay between the first and second sample of a container, so that rates are available early. */
export const SECOND_SAMPLE_MS = 2_000;

/**
 * Offset of a container's samples within the interval, milliseconds. Containers without a cgroup
 * are sampled together: one scan of all processes serves all of them.
 */
export function computeSampleOffset(containerId: string, ownCgroup: boolean): number {
  return ownCgroup
    ? (Number.parseInt(containerId.slice(0, 8), 16) * TICK_MS) % SAMPLE_INTERVAL_MS
    : 0;
}

/**
 * Time of the next sample after one at `nowMs`: at the container's offset, no sooner than half an
 * interval later.
 */
export function computeNextSample(nowMs: number, offsetMs: number): number {
  const soonestMs = nowMs + SAMPLE_INTERVAL_MS / 2;
  return Math.ceil((soonestMs - offsetMs) / SAMPLE_INTERVAL_MS) * SAMPLE_INTERVAL_MS + offsetMs;
}
