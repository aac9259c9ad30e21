import { join } from 'node:path';
import type { Clock } from '@cloudless/base';
import {
  cpuMillisBetween,
  computeCapacity,
  parseCpusAllowed,
  parseMeminfo,
  computePressure,
  type CgroupLayout,
  type CpuSample,
  type PressureConditions,
} from '@cloudless/cgroup-stats';
import { openOwnGroups, parseIfPresent, type OwnGroups } from './own-groups.js';
import { thisMachine, type HostMachine } from './host-machine.js';

/** Arguments of {@link createHostReader}. */
export interface HostReaderOptions {
  readonly clock: Clock;
  /** Directory whose file system is the node's storage. It need not exist yet. */
  readonly dataDirectory: string;
  /** Mount point of `proc`. Default: `/proc`. */
  readonly procRoot?: string;
  /** Mount point of `sysfs`. Default: `/sys`. */
  readonly sysRoot?: string;
  /** Default: the machine on which this process runs. */
  readonly machine?: HostMachine;
}

/**
 * Resources of this machine for workloads: for CPU and memory separately, the lesser of the size of
 * the machine and the lowest limit among this process's group and its ancestors.
 */
export interface HostCapacity {
  /** Thousandths of a CPU, at least 1. */
  readonly cpuMillis: number;
  readonly memoryBytes: number;
  /** Size of the data directory's file system without blocks reserved for root. */
  readonly storageBytes: number;
  readonly cgroupLayout: CgroupLayout;
}

/**
 * Resource use in the same scope as {@link HostCapacity}: the whole machine, or the group with the
 * lower limit, for CPU and memory separately.
 */
export interface HostUsage {
  /**
   * Average since the previous call in thousandths of a CPU. Absent at the first call, after a
   * counter reset, and when another group sets the limit than at the previous call.
   */
  readonly cpuMillis?: number;
  /** Without reclaimable page cache, where the kernel reports it. */
  readonly memoryBytes: number;
  readonly storageBytes: number;
  /**
   * Inodes of the data directory's file system. `total` is 0 when it has no fixed number of inodes,
   * such as btrfs.
   */
  readonly inodes: { readonly used: number; readonly total: number };
}

/**
 * Reads capacity, use and pressure of this machine. Needs no privileges. Works with cgroup v1, v2,
 * both, and neither (for example on macOS, with the values of Node.js).
 */
export interface HostReader {
  /**
   * Reads the capacity, which may change while this process runs.
   * @throws MalformedCgroupFileError when a file is malformed; errors of the file system unchanged.
   */
  readCapacity(): Promise<HostCapacity>;
  /**
   * Reads the usage. Only one caller may use the reader for this, because CPU use is the average
   * since the previous call.
   * @throws The same errors as {@link readCapacity}.
   */
  readUsage(): Promise<HostUsage>;
  /**
   * Reads the pressure conditions. Pressure begins above 85 % and ends below 80 %, and a full disk
   * ends with twice the free space or inodes below which it began, so the result depends on the
   * previous call. Without `/proc/meminfo` and without a memory limit, memory pressure is never
   * reported: other operating systems do not count reclaimable memory as free.
   * @throws The same errors as {@link readCapacity}.
   */
  readConditions(): Promise<PressureConditions>;
}

/** Creates a reader. It holds no resources and need not be closed. */
export function createHostReader(options: HostReaderOptions): HostReader {
  const {
    clock,
    dataDirectory,
    procRoot = '/proc',
    sysRoot = '/sys',
    machine = thisMachine,
  } = options;
  let lastCpu: SourcedSample | undefined;
  let lastConditions: PressureConditions | undefined;

  const readAll = async (): Promise<Reading> => {
    const groups = await openOwnGroups(procRoot, sysRoot);
    const [quota, limit] = [await groups.cpuQuota(), await groups.memoryLimit()];
    const meminfo = await parseIfPresent(join(procRoot, 'meminfo'), parseMeminfo);
    const allowedCpus = await parseIfPresent(join(procRoot, 'self/status'), parseCpusAllowed);
    const memoryTotalBytes = meminfo?.totalBytes ?? machine.totalMemoryBytes();
    const capacity = computeCapacity({
      // The kernel may allow CPUs that are not present.
      cpuCount: Math.min(machine.cpuCount(), allowedCpus ?? Infinity),
      cpuQuota: quota?.limit,
      memoryTotalBytes,
      memoryLimitBytes: limit?.limit,
    });
    const machineUsedBytes =
      memoryTotalBytes - (meminfo?.availableBytes ?? machine.freeMemoryBytes());
    const groupUsedBytes =
      limit !== undefined && capacity.memoryIsLimited
        ? await groups.memoryUsedBytes(limit)
        : undefined;
    return {
      groups,
      capacity,
      cpuGroup: capacity.cpuIsLimited ? quota : undefined,
      excludesReclaimable: meminfo !== undefined || groupUsedBytes !== undefined,
      memoryUsedBytes: Math.min(capacity.memoryBytes, groupUsedBytes ?? machineUsedBytes),
      disk: await machine.diskUseOf(dataDirectory),
    };
  };

  const sampleCpu = async ({ groups, cpuGroup }: Reading): Promise<SourcedSample> => {
    const groupUsage = cpuGroup && (await groups.cpuUsageNsec(cpuGroup));
    if (cpuGroup === undefined || groupUsage === undefined) {
      return { source: MACHINE, usageNsec: machine.cpuBusyNsec(), atMs: clock.now() };
    }
    return { source: cpuGroup.directory, usageNsec: groupUsage, atMs: clock.now() };
  };

  return {
    async readCapacity() {
      const { capacity, disk, groups } = await readAll();
      const { cpuMillis, memoryBytes } = capacity;
      return { cpuMillis, memoryBytes, storageBytes: disk.totalBytes, cgroupLayout: groups.layout };
    },
    async readUsage() {
      const reading = await readAll();
      const sample = await sampleCpu(reading);
      const previous = lastCpu;
      lastCpu = sample;
      // Counters of different groups are not comparable.
      const cpuMillis =
        previous?.source === sample.source ? cpuMillisBetween(previous, sample) : undefined;
      const { usedBytes, usedInodes, totalInodes } = reading.disk;
      const usage = {
        memoryBytes: reading.memoryUsedBytes,
        storageBytes: usedBytes,
        inodes: { used: usedInodes, total: totalInodes },
      };
      return cpuMillis === undefined ? usage : { cpuMillis, ...usage };
    },
    async readConditions() {
      const { capacity, excludesReclaimable, memoryUsedBytes, disk } = await readAll();
      const memoryTotalBytes = excludesReclaimable ? capacity.memoryBytes : 0;
      const input = {
        memoryUsedBytes,
        memoryTotalBytes,
        diskUsedBytes: disk.usedBytes,
        diskTotalBytes: disk.totalBytes,
        inodesUsed: disk.usedInodes,
        inodesTotal: disk.totalInodes,
      };
      return (lastConditions = computePressure(input, lastConditions));
    },
  };
}

/** Values of one reading of all files. */
interface Reading {
  readonly groups: OwnGroups;
  readonly capacity: ReturnType<typeof computeCapacity>;
  /** Group that sets the CPU quota; undefined for the whole machine. */
  readonly cpuGroup: Awaited<ReturnType<OwnGroups['cpuQuota']>>;
  /** True when `memoryUsedBytes` excludes reclaimable memory, as memory pressure requires. */
  readonly excludesReclaimable: boolean;
  readonly memoryUsedBytes: number;
  readonly disk: Awaited<ReturnType<HostMachine['diskUseOf']>>;
}

/** A reading of a CPU counter, and the counter. */
interface SourcedSample extends CpuSample {
  /** Directory of the group, or {@link MACHINE}. */
  readonly source: string;
}

/** Source of the counters of the whole machine. No directory has this name. */
const MACHINE = '';
