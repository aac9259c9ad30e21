/**
 * Parts of the files about a container, by the cgroup controller that provides them. `unified` is
 * the part that every v2 hierarchy provides; on a hybrid machine it exists beside the v1
 * controllers.
 */
export type GroupPart = 'cpu' | 'cpuacct' | 'memory' | 'io' | 'pids' | 'unified';

/** Names of the files to read in the directory of a group, by part and cgroup version. */
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

/** Texts of the files of one group by file name. A missing file is absent. */
export interface GroupTexts {
  readonly version: 1 | 2;
  readonly texts: Readonly<Record<string, string>>;
}

/** Texts of all files of one sample. */
export interface SampleTexts {
  readonly groups: Readonly<Partial<Record<GroupPart, GroupTexts>>>;
  /** Text of `/proc/<pid>/net/dev` of a process in the container; absent without an own network. */
  readonly netDev?: string;
}
