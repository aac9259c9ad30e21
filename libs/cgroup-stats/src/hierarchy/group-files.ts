/**
 * Hierarchies with files about a container. `unified` is the v2 hierarchy; on a hybrid machine it
 * exists beside the v1 hierarchies.
 */
export type GroupPart = 'cpu' | 'cpuacct' | 'memory' | 'io' | 'pids' | 'unified';

/** Files to read in the directory of a group, by part and version. */
export const groupFiles: Readonly<
  Record<GroupPart, { readonly 1: readonly string[]; readonly 2: readonly string[] }>
> = {
  unified: { 1: [], 2: ['cpu.stat', 'cpu.pressure', 'memory.pressure', 'io.pressure'] },
  cpuacct: { 1: ['cpuacct.usage', 'cpuacct.usage_user', 'cpuacct.usage_sys'], 2: [] },
  cpu: { 1: ['cpu.stat', 'cpu.cfs_quota_us', 'cpu.cfs_period_us'], 2: ['cpu.max'] },
  memory: {
    1: [
      'memory.usage_in_bytes',
      'memory.stat',
      'memory.limit_in_bytes',
      'memory.max_usage_in_bytes',
      'memory.memsw.usage_in_bytes',
      'memory.memsw.limit_in_bytes',
    ],
    2: [
      'memory.current',
      'memory.stat',
      'memory.max',
      'memory.peak',
      'memory.swap.current',
      'memory.swap.max',
    ],
  },
  io: {
    1: [
      'blkio.throttle.io_service_bytes_recursive',
      'blkio.throttle.io_serviced_recursive',
      'blkio.throttle.io_service_bytes',
      'blkio.throttle.io_serviced',
    ],
    2: ['io.stat'],
  },
  pids: { 1: ['pids.current', 'pids.max'], 2: ['pids.current', 'pids.max'] },
};

/** Texts of a group's files by file name, without missing files. */
export interface GroupTexts {
  readonly version: 1 | 2;
  readonly texts: Readonly<Record<string, string>>;
}

export interface SampleTexts {
  readonly groups: Readonly<Partial<Record<GroupPart, GroupTexts>>>;
  /** `/proc/<pid>/net/dev` of a process in the container. */
  readonly netDev?: string;
}
