/** Time between two samples of a container, milliseconds. */
export const SAMPLE_INTERVAL_MS = 10_000;
/**
 * Interval of the sampling loop. Samples are spread over {@link SAMPLE_INTERVAL_MS} in steps of
 * this size.
 */
export const TICK_MS = 1_000;
/** Delay between the first and second sample of a container, so that rates are available early. */
export const SECOND_SAMPLE_MS = 2_000;

/**
 * Returns the offset of a container's samples within the interval, milliseconds. The offset is 0
 * for containers without their own cgroup, so that one scan of all processes samples all of them.
 */
export function computeSampleOffset(containerId: string, ownCgroup: boolean): number {
  return ownCgroup
    ? (Number.parseInt(containerId.slice(0, 8), 16) * TICK_MS) % SAMPLE_INTERVAL_MS
    : 0;
}

/**
 * Returns the time of the next sample after a sample at `nowMs`: at the container's offset, no
 * sooner than half an interval later.
 */
export function computeNextSample(nowMs: number, offsetMs: number): number {
  const soonestMs = nowMs + SAMPLE_INTERVAL_MS / 2;
  return Math.ceil((soonestMs - offsetMs) / SAMPLE_INTERVAL_MS) * SAMPLE_INTERVAL_MS + offsetMs;
}
