import type { CpuStat } from '../parsers/cpu.js';
import type { IoUse } from '../parsers/io.js';
import type { NetworkUse } from '../parsers/network.js';
import type { Pressure } from '../parsers/pressure.js';

/**
 * Resource use of a container at one moment (CLD-REQ-013). Parts and fields that the kernel does
 * not count for the container are absent; a limit is absent when there is none. Counters only grow
 * and are `bigint`; amounts are `number`.
 */
export interface ContainerSample {
  /**
   * Identifies the counters: the groups of the container, and a process with its start time.
   * Counters of samples with different sources are not comparable.
   */
  readonly source: string;
  /**
   * Origin of the counters: cgroup v1, v2 or both (`hybrid`), or the sum over `processes` without a
   * group of their own. Absent when no file of a group was found.
   */
  readonly origin?: 'v1' | 'v2' | 'hybrid' | 'processes';
  /**
   * Monotonic time in milliseconds at which the CPU counter was read. The other values were read
   * right after.
   */
  readonly atMs: number;
  readonly cpu?: CpuUse;
  readonly memory?: MemoryUse;
  readonly io?: IoUse;
  readonly network?: NetworkUse;
  readonly pids?: PidsUse;
  /** Only with cgroup v2, also beside v1. */
  readonly pressure?: PressureUse;
}

/** CPU use of a container. */
export interface CpuUse extends CpuStat {
  /** Quota of the group itself in thousandths of a CPU; absent without a quota. */
  readonly limitMillis?: number;
}

/** Memory of a group and all groups below it, in bytes. */
export interface MemoryUse {
  /** Includes page cache and kernel memory. */
  readonly usageBytes: number;
  /**
   * Usage minus the page cache that the kernel reclaims first. Compare this value with the limit to
   * see how close the container is to an OOM kill.
   */
  readonly workingSetBytes?: number;
  /** Limit of the group itself; absent without a limit. */
  readonly limitBytes?: number;
  /** Highest `usageBytes` so far. In v2 from kernel 5.19 on. */
  readonly peakBytes?: number;
  /** Page cache, tmpfs and shared memory. */
  readonly fileBytes?: number;
  /** Anonymous memory. */
  readonly anonBytes?: number;
  readonly swapBytes?: number;
  /** Limit of the swap alone; absent without a limit. */
  readonly swapLimitBytes?: number;
}

/** Number of processes and threads together. */
export interface PidsUse {
  readonly current: number;
  /** Absent without a limit. */
  readonly limit?: number;
}

/** Pressure of a container by resource. */
export interface PressureUse {
  readonly cpu?: Pressure;
  readonly memory?: Pressure;
  readonly io?: Pressure;
}
