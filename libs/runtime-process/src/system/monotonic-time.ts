/**
 * Returns the time of CLOCK_MONOTONIC in milliseconds. All processes of one machine read the same
 * clock, so that one process can measure how long ago another one read it. The clock stands still
 * while the machine is suspended.
 * @see Linux manual page clock_gettime(2)
 */
export function readMonotonicMs(): number {
  return Number(process.hrtime.bigint()) / 1e6;
}
