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
   * Identifies what was counted: a group and its first process. Counters of different sources are
   * not comparable.
   */
  readonly source: string;
  /** Kind of the source; `hybrid`: groups of both versions. Absent when no group was found. */
  readonly origin?: 'v1' | 'v2' | 'hybrid' | 'processes';
  /**
   * Time at which the CPU counter was read, monotonic milliseconds; everything else was read right
   * after.
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

export interface CpuUse extends CpuStat {
  /** The group's own quota, thousandths of a CPU. */
  readonly limitMillis?: number;
}

/** Memory of a group and all groups below it. */
export interface MemoryUse {
  /** Includes page cache and kernel memory. */
  readonly usageBytes: number;
  /**
   * Usage minus the page cache that the kernel reclaims first. Compare this value with the limit to
   * see how close the container is to an OOM kill.
   */
  readonly workingSetBytes?: number;
  /** The group's own limit. */
  readonly limitBytes?: number;
  /** Highest `usageBytes` so far. v2: from kernel 5.19 on. */
  readonly peakBytes?: number;
  readonly fileBytes?: number;
  readonly anonBytes?: number;
  readonly swapBytes?: number;
  readonly swapLimitBytes?: number;
}

/** Processes and threads; the kernel counts both. */
export interface PidsUse {
  readonly current: number;
  readonly limit?: number;
}

export interface PressureUse {
  readonly cpu?: Pressure;
  readonly memory?: Pressure;
  readonly io?: Pressure;
}
