import type { CpuQuota } from './cpu.js';

/** What a machine has, and what the group this process runs in may use of it. */
export interface MachineLimits {
  /** CPUs this process may run on. */
  readonly cpuCount: number;
  /** Absent or undefined when there is none. */
  readonly cpuQuota?: CpuQuota | undefined;
  readonly memoryTotalBytes: number;
  /** Absent or undefined when there is none. */
  readonly memoryLimitBytes?: number | undefined;
}

/** What can really be used. */
export interface Capacity {
  /** Thousandths of a CPU, at least 1. */
  readonly cpuMillis: number;
  readonly memoryBytes: number;
  /** Whether the group's quota, and not the machine, decides. */
  readonly cpuIsLimited: boolean;
  readonly memoryIsLimited: boolean;
}

/**
 * The lesser of machine and group, for CPU and memory each. A part of a thousandth of a CPU is
 * none.
 */
export function effectiveCapacity({
  cpuCount,
  cpuQuota,
  memoryTotalBytes,
  memoryLimitBytes,
}: MachineLimits): Capacity {
  const machineMillis = cpuCount * 1_000;
  const quotaMillis = cpuQuota === undefined ? Infinity : quotaToMillis(cpuQuota);
  const limitBytes = memoryLimitBytes ?? Infinity;
  return {
    cpuMillis: Math.max(1, Math.min(machineMillis, quotaMillis)),
    memoryBytes: Math.min(memoryTotalBytes, limitBytes),
    cpuIsLimited: quotaMillis < machineMillis,
    memoryIsLimited: limitBytes < memoryTotalBytes,
  };
}

/** A quota in thousandths of a CPU, rounded down. */
export function quotaToMillis({ quotaUsec, periodUsec }: CpuQuota): number {
  return Math.floor((quotaUsec * 1_000) / periodUsec);
}

/** How full memory and disk are, bytes. A pair without a total says nothing. */
export interface PressureInput {
  readonly memoryUsedBytes: number;
  readonly memoryTotalBytes: number;
  readonly diskUsedBytes: number;
  readonly diskTotalBytes: number;
}

/** Conditions of a node (CLD-REQ-010). */
export interface PressureConditions {
  readonly memoryPressure: boolean;
  readonly diskPressure: boolean;
}

/**
 * Pressure begins above 85 % and ends below 80 %, so that a value around the mark does not make the
 * node flap; between the two the condition stays what it was. With a total of 0 it stays as well.
 */
export function pressureConditions(
  input: PressureInput,
  previous: PressureConditions = NO_PRESSURE,
): PressureConditions {
  return {
    memoryPressure: isPressed(
      input.memoryUsedBytes,
      input.memoryTotalBytes,
      previous.memoryPressure,
    ),
    diskPressure: isPressed(input.diskUsedBytes, input.diskTotalBytes, previous.diskPressure),
  };
}

const NO_PRESSURE: PressureConditions = { memoryPressure: false, diskPressure: false };
/** Percent of the total. */
const BEGINS_ABOVE = 85;
const ENDS_BELOW = 80;

function isPressed(used: number, total: number, was: boolean): boolean {
  if (total <= 0) return was;
  return used * 100 > total * BEGINS_ABOVE || (was && used * 100 >= total * ENDS_BELOW);
}
