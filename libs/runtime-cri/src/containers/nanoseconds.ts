const NANOS_PER_MS = 1_000_000n;

/** Converts a time of the Container Runtime Interface, in nanoseconds, to whole milliseconds. */
export function toMs(nanos: bigint): number {
  return Number(nanos / NANOS_PER_MS);
}

/** Converts milliseconds, rounded, to the nanoseconds of the Container Runtime Interface. */
export function toNanos(ms: number): bigint {
  return BigInt(Math.round(ms)) * NANOS_PER_MS;
}
