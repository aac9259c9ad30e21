import type { CpuStat } from './cpu.js';
import type { IoUse } from './io.js';
import type { NetworkUse } from './network.js';
import type { Pressure } from './pressure.js';

/**
 * What a container uses at one moment (CLD-REQ-013). A part or field that its kernel does not have,
 * or does not count for it, is absent; a limit is absent when there is none. Counters only grow and
 * are `bigint`; amounts are `number`.
 */
export interface ContainerSample {
  /**
   * What was counted: a group, and the process that stands for it. Counters of two sources have
   * nothing to do with each other.
   */
  readonly source: string;
  /**
   * Which kind of source that is; `hybrid`: groups of both versions. Absent when nothing was found.
   */
  readonly origin?: 'v1' | 'v2' | 'hybrid' | 'processes';
  /**
   * When the CPU counter was read, monotonic milliseconds; everything else was read right after it.
   */
  readonly atMs: number;
  readonly cpu?: CpuUse;
  readonly memory?: MemoryUse;
  readonly io?: IoUse;
  readonly network?: NetworkUse;
  readonly pids?: PidsUse;
  /** cgroup v2 only, also beside v1. */
  readonly pressure?: PressureUse;
}

export interface CpuUse extends CpuStat {
  /** The group's own quota, thousandths of a CPU. */
  readonly limitMillis?: number;
}

/** All of a group and the groups below it. */
export interface MemoryUse {
  /** Page cache and the kernel's memory included. */
  readonly usageBytes: number;
  /**
   * Usage without page cache that the kernel drops first: what counts against being killed for want
   * of memory.
   */
  readonly workingSetBytes?: number;
  /** The group's own limit. */
  readonly limitBytes?: number;
  /** The most that `usageBytes` has been. v2: from kernel 5.19 on. */
  readonly peakBytes?: number;
  readonly fileBytes?: number;
  readonly anonBytes?: number;
  readonly swapBytes?: number;
  readonly swapLimitBytes?: number;
}

/** Processes and threads, as the kernel counts both. */
export interface PidsUse {
  readonly current: number;
  readonly limit?: number;
}

export interface PressureUse {
  readonly cpu?: Pressure;
  readonly memory?: Pressure;
  readonly io?: Pressure;
}
