import { join } from 'node:path';
import type { Clock } from '@cloudless/base';
import {
  cpuMillisBetween,
  effectiveCapacity,
  parseCpusAllowed,
  parseMeminfo,
  pressureConditions,
  type CgroupLayout,
  type CpuSample,
  type PressureConditions,
} from '@cloudless/cgroup-stats';
import { openGroupFiles, parsed, type GroupFiles } from './group-files.js';
import { thisMachine, type HostMachine } from './host-machine.js';

/** Needs of a {@link HostReader}. */
export interface HostReaderOptions {
  readonly clock: Clock;
  /** Its file system is the node's storage. It need not exist yet. */
  readonly dataDirectory: string;
  /** Where `proc` is mounted. Default `/proc`. */
  readonly procRoot?: string;
  /** Where `sysfs` is mounted. Default `/sys`. */
  readonly sysRoot?: string;
  /** Default: the machine this process runs on. */
  readonly machine?: HostMachine;
}

/**
 * What this machine has for workloads: the lesser of the machine and of the limits this process is
 * under.
 */
export interface HostCapacity {
  readonly cpuMillis: number;
  readonly memoryBytes: number;
  /** Of the data directory's file system, without what only root may use. */
  readonly storageBytes: number;
  readonly cgroupLayout: CgroupLayout;
}

/**
 * What is in use, measured against the same as {@link HostCapacity}: the machine, or the group
 * whose limit is lower.
 */
export interface HostUsage {
  /**
   * Average since the call before, thousandths of a CPU; absent at the first call, and when the
   * counter began anew.
   */
  readonly cpuMillis?: number;
  readonly memoryBytes: number;
  readonly storageBytes: number;
}

/**
 * Reads capacity, usage and pressure of this machine. Needs no privileges. Works with cgroup v1,
 * v2, both, and without (as on macOS, where the runtime's own figures stand in).
 */
export interface HostReader {
  /**
   * @throws MalformedCgroupFileError when a file is there and does not read as documented; file
   * system errors as they are.
   */
  readCapacity(): Promise<HostCapacity>;
  /** @throws as {@link readCapacity}. */
  readUsage(): Promise<HostUsage>;
  /**
   * Pressure begins above 85 % and ends below 80 %, so it depends on the call before. Where
   * `/proc/meminfo` is missing and no limit applies, memory is never said to be short: what other
   * systems call free leaves out what they would give up at once.
   * @throws as {@link readCapacity}.
   */
  readConditions(): Promise<PressureConditions>;
}

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

  const survey = async (): Promise<Survey> => {
    const groups = await openGroupFiles(procRoot, sysRoot);
    const [quota, limit] = [await groups.cpuQuota(), await groups.memoryLimit()];
    const meminfo = await parsed(join(procRoot, 'meminfo'), parseMeminfo);
    const allowed = await parsed(join(procRoot, 'self/status'), parseCpusAllowed);
    const memoryTotalBytes = meminfo?.totalBytes ?? machine.totalMemoryBytes();
    const capacity = effectiveCapacity({
      // the list may name CPUs that are not plugged in
      cpuCount: Math.min(machine.cpuCount(), allowed ?? Infinity),
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
      memoryIsJudged: meminfo !== undefined || groupUsedBytes !== undefined,
      memoryUsedBytes: Math.min(capacity.memoryBytes, groupUsedBytes ?? machineUsedBytes),
      disk: await machine.diskUseOf(dataDirectory),
    };
  };

  const sampleCpu = async ({ groups, cpuGroup }: Survey): Promise<SourcedSample> => {
    const ofGroup = cpuGroup && (await groups.cpuUsageNsec(cpuGroup));
    if (cpuGroup === undefined || ofGroup === undefined) {
      return { source: MACHINE, usageNsec: machine.cpuBusyNsec(), atMs: clock.now() };
    }
    return { source: cpuGroup.directory, usageNsec: ofGroup, atMs: clock.now() };
  };

  return {
    async readCapacity() {
      const { capacity, disk, groups } = await survey();
      const { cpuMillis, memoryBytes } = capacity;
      return { cpuMillis, memoryBytes, storageBytes: disk.totalBytes, cgroupLayout: groups.layout };
    },
    async readUsage() {
      const now = await survey();
      const sample = await sampleCpu(now);
      const earlier = lastCpu;
      lastCpu = sample;
      // Counters of two groups have nothing to do with each other.
      const cpuMillis =
        earlier?.source === sample.source ? cpuMillisBetween(earlier, sample) : undefined;
      const usage = { memoryBytes: now.memoryUsedBytes, storageBytes: now.disk.usedBytes };
      return cpuMillis === undefined ? usage : { cpuMillis, ...usage };
    },
    async readConditions() {
      const { capacity, memoryIsJudged, memoryUsedBytes, disk } = await survey();
      const memoryTotalBytes = memoryIsJudged ? capacity.memoryBytes : 0;
      const input = {
        memoryUsedBytes,
        memoryTotalBytes,
        diskUsedBytes: disk.usedBytes,
        diskTotalBytes: disk.totalBytes,
      };
      return (lastConditions = pressureConditions(input, lastConditions));
    },
  };
}

/** Everything one pass over the files has found. */
interface Survey {
  readonly groups: GroupFiles;
  readonly capacity: ReturnType<typeof effectiveCapacity>;
  /** The group to measure CPU by; undefined for the whole machine. */
  readonly cpuGroup: Awaited<ReturnType<GroupFiles['cpuQuota']>>;
  /** Whether `memoryUsedBytes` leaves out what can be dropped, as a judgement of pressure needs. */
  readonly memoryIsJudged: boolean;
  readonly memoryUsedBytes: number;
  readonly disk: Awaited<ReturnType<HostMachine['diskUseOf']>>;
}

interface SourcedSample extends CpuSample {
  readonly source: string;
}

/** No directory has this name. */
const MACHINE = '';
