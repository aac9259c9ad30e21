import type { CpuQuota } from './parsers/cpu.js';

/** Size of a machine, and the limits of this process's group. */
export interface MachineLimits {
  /** Number of CPUs on which this process may run. */
  readonly cpuCount: number;
  /** Absent or undefined without a quota. */
  readonly cpuQuota?: CpuQuota | undefined;
  readonly memoryTotalBytes: number;
  /** Absent or undefined without a limit. */
  readonly memoryLimitBytes?: number | undefined;
}

/** Resources that this process can use. */
export interface Capacity {
  /** Thousandths of a CPU, at least 1. */
  readonly cpuMillis: number;
  readonly memoryBytes: number;
  /** True when the quota is lower than the machine. */
  readonly cpuIsLimited: boolean;
  readonly memoryIsLimited: boolean;
}

/**
 * Returns the lesser of machine size and group limit, separately for CPU and memory. CPU is rounded
 * down to whole thousandths.
 */
export function computeCapacity({
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

/** Converts a quota to thousandths of a CPU, rounded down. */
export function quotaToMillis({ quotaUsec, periodUsec }: CpuQuota): number {
  return Math.floor((quotaUsec * 1_000) / periodUsec);
}

/** Use of memory and disk in bytes. A pair without a total is ignored. */
export interface PressureInput {
  readonly memoryUsedBytes: number;
  readonly memoryTotalBytes: number;
  readonly diskUsedBytes: number;
  readonly diskTotalBytes: number;
}

/** Pressure conditions of a node (CLD-REQ-010). */
export interface PressureConditions {
  readonly memoryPressure: boolean;
  readonly diskPressure: boolean;
}

/**
 * Pressure begins above 85 % and ends below 80 %; between the two, and with a total of 0, the
 * condition keeps its previous value. So a value near a threshold does not make the node flap.
 */
export function computePressure(
  input: PressureInput,
  previous: PressureConditions = NO_PRESSURE,
): PressureConditions {
  return {
    memoryPressure: isUnderPressure(
      input.memoryUsedBytes,
      input.memoryTotalBytes,
      previous.memoryPressure,
    ),
    diskPressure: isUnderPressure(input.diskUsedBytes, input.diskTotalBytes, previous.diskPressure),
  };
}

const NO_PRESSURE: PressureConditions = { memoryPressure: false, diskPressure: false };
/** Percent of the total. */
const BEGINS_ABOVE_PERCENT = 85;
const ENDS_BELOW_PERCENT = 80;

function isUnderPressure(used: number, total: number, was: boolean): boolean {
  if (total <= 0) return was;
  return (
    used * 100 > total * BEGINS_ABOVE_PERCENT || (was && used * 100 >= total * ENDS_BELOW_PERCENT)
  );
}
