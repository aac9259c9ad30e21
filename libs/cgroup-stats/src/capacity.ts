import type { CpuQuota } from './parsers/cpu.js';

/** Size of a machine, and the limits of a group on it. */
export interface MachineLimits {
  /** Number of CPUs on which the processes may run. */
  readonly cpuCount: number;
  /** Absent or undefined without a quota. */
  readonly cpuQuota?: CpuQuota | undefined;
  readonly memoryTotalBytes: number;
  /** Absent or undefined without a limit. */
  readonly memoryLimitBytes?: number | undefined;
}

/** Resources that the group can use. */
export interface Capacity {
  /** Thousandths of a CPU, at least 1. */
  readonly cpuMillis: number;
  readonly memoryBytes: number;
  /** True when the quota is lower than the CPUs of the machine. */
  readonly cpuIsLimited: boolean;
  /** True when the limit is lower than the memory of the machine. */
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

/**
 * Use of memory and disk in bytes, and of inodes. A total of 0 leaves the condition of its resource
 * unchanged, and says of inodes that their number has no limit.
 */
export interface PressureInput {
  readonly memoryUsedBytes: number;
  readonly memoryTotalBytes: number;
  readonly diskUsedBytes: number;
  readonly diskTotalBytes: number;
  readonly inodesUsed: number;
  readonly inodesTotal: number;
}

/** Pressure conditions of a node (CLD-REQ-010). */
export interface PressureConditions {
  readonly memoryPressure: boolean;
  readonly diskPressure: boolean;
  /** True while the disk has so little free space that nothing new may be placed on the node. */
  readonly diskFull: boolean;
  /** True while the disk has so few free inodes that nothing new may be placed on the node. */
  readonly inodesFull: boolean;
}

/**
 * Computes the pressure conditions. Pressure begins above 85 % and ends below 80 %. A disk is full
 * below the lesser of 5 % and 1 GiB of free space, or below the lesser of 5 % and 1000 free inodes,
 * until twice as much is free. Between the two, and with a total of 0, a condition keeps its
 * previous value, so that a value near a threshold does not make the node flap.
 * @param previous - Result of the previous call. Default: no pressure.
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
    diskFull:
      input.diskTotalBytes <= 0
        ? previous.diskFull
        : isFull(input.diskUsedBytes, input.diskTotalBytes, FULL_BELOW_BYTES, previous.diskFull),
    inodesFull:
      input.inodesTotal > 0 &&
      isFull(input.inodesUsed, input.inodesTotal, FULL_BELOW_INODES, previous.inodesFull),
  };
}

const NO_PRESSURE: PressureConditions = {
  memoryPressure: false,
  diskPressure: false,
  diskFull: false,
  inodesFull: false,
};
/** Thresholds in percent of the total. */
const BEGINS_ABOVE_PERCENT = 85;
const ENDS_BELOW_PERCENT = 80;
/** A disk is full with less than this share and less than this number of free bytes or inodes. */
const FULL_BELOW_PERCENT = 5;
const FULL_BELOW_BYTES = 2 ** 30;
const FULL_BELOW_INODES = 1_000;

/** @param most - Number of free units with which a disk of any size is not full. */
function isFull(used: number, total: number, most: number, wasFull: boolean): boolean {
  const needed = Math.min((total * FULL_BELOW_PERCENT) / 100, most);
  return total - used < (wasFull ? 2 * needed : needed);
}

function isUnderPressure(used: number, total: number, wasUnderPressure: boolean): boolean {
  if (total <= 0) return wasUnderPressure;
  return (
    used * 100 > total * BEGINS_ABOVE_PERCENT ||
    (wasUnderPressure && used * 100 >= total * ENDS_BELOW_PERCENT)
  );
}
