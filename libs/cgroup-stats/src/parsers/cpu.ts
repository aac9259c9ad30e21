import { definedFields } from '@cloudless/base';
import { iterateLines, parseKeyed, parseSingle, parseWhole, type KeyedFile } from './lines.js';
import { MalformedCgroupFileError } from './malformed.js';

/** CPU bandwidth limit: CPU time per period. Both values are above 0. */
export interface CpuQuota {
  readonly quotaUsec: number;
  readonly periodUsec: number;
}

/** CPU time of a group since its creation, nanoseconds. */
export interface CpuStat {
  readonly usageNsec: bigint;
  readonly userNsec?: bigint;
  readonly systemNsec?: bigint;
  /** Absent when the CPU controller is not enabled for the group, or the file was cut off. */
  readonly throttling?: CpuThrottling;
}

/** Throttling of a group since its creation. */
export interface CpuThrottling {
  /** Periods in which the group had runnable tasks. */
  readonly periods: bigint;
  /** Periods in which the group was throttled. */
  readonly throttledPeriods: bigint;
  /** Throttled time summed over the CPUs, nanoseconds. */
  readonly throttledNsec: bigint;
}

/**
 * Parses cgroup v2 `cpu.max`, quota and period in microseconds: `150000 100000`, or `max 100000`
 * for no limit.
 * @returns Undefined when there is no limit.
 * @throws {@link MalformedCgroupFileError}
 * @see Linux kernel, Documentation/admin-guide/cgroup-v2.rst, "CPU Interface Files"
 */
export function parseCpuMax(text: string): CpuQuota | undefined {
  const fields = parseSingle('cpu.max', text).split(/\s+/, 3);
  const [quota = '', period = String(DEFAULT_PERIOD_USEC)] = fields;
  if (fields.length > 2) throw new MalformedCgroupFileError('cpu.max', 1, 'more than two fields');
  const periodUsec = parsePositive('cpu.max', period);
  return quota === 'max' ? undefined : { quotaUsec: parsePositive('cpu.max', quota), periodUsec };
}

/** Period that the kernel uses when only the quota was written. */
const DEFAULT_PERIOD_USEC = 100_000;

/**
 * Parses cgroup v1 `cpu.cfs_quota_us` (−1 for no limit) and `cpu.cfs_period_us`, in microseconds.
 * @returns Undefined when there is no limit.
 * @throws {@link MalformedCgroupFileError}
 * @see Linux kernel, Documentation/scheduler/sched-bwc.rst
 */
export function parseCfsQuota(quotaText: string, periodText: string): CpuQuota | undefined {
  const quota = parseSingle('cpu.cfs_quota_us', quotaText);
  const periodUsec = parsePositive(
    'cpu.cfs_period_us',
    parseSingle('cpu.cfs_period_us', periodText),
  );
  return quota === '-1'
    ? undefined
    : { quotaUsec: parsePositive('cpu.cfs_quota_us', quota), periodUsec };
}

function parsePositive(file: string, text: string): number {
  const value = Number(parseWhole(file, 1, text));
  if (value === 0) throw new MalformedCgroupFileError(file, 1, 'quota and period must be above 0');
  return value;
}

/**
 * Parses cgroup v2 `cpu.stat`; converts its microseconds to nanoseconds.
 * @param text - `key value` lines in any order. Unknown keys are skipped, because newer kernels add
 *   keys.
 * @throws {@link MalformedCgroupFileError} when `usage_usec` is missing or a value is not a whole
 *   number.
 * @see Linux kernel, Documentation/admin-guide/cgroup-v2.rst, "CPU Interface Files"
 */
export function parseCpuStat(text: string): CpuStat {
  const keyed = parseKeyed('cpu.stat', text, [
    'usage_usec',
    'user_usec',
    'system_usec',
    ...THROTTLING,
    'throttled_usec',
  ]);
  const user = keyed.whole('user_usec');
  const system = keyed.whole('system_usec');
  const throttled = keyed.whole('throttled_usec');
  const throttling = toThrottling(
    keyed,
    throttled === undefined ? undefined : throttled * NSEC_PER_USEC,
  );
  return {
    usageNsec: keyed.requireWhole('usage_usec') * NSEC_PER_USEC,
    ...(user === undefined ? {} : { userNsec: user * NSEC_PER_USEC }),
    ...(system === undefined ? {} : { systemNsec: system * NSEC_PER_USEC }),
    ...definedFields({ throttling }),
  };
}

const NSEC_PER_USEC = 1_000n;

/**
 * Parses `cpu.stat` of cgroup v1, which contains only throttling; `throttled_time` is in
 * nanoseconds.
 * @returns Undefined when the kernel has no bandwidth control.
 * @throws {@link MalformedCgroupFileError}
 * @see Linux kernel, Documentation/scheduler/sched-bwc.rst, "Statistics"
 */
export function parseCpuThrottling(text: string): CpuThrottling | undefined {
  const keyed = parseKeyed('cpu.stat', text, [...THROTTLING, 'throttled_time']);
  return toThrottling(keyed, keyed.whole('throttled_time'));
}

const THROTTLING = ['nr_periods', 'nr_throttled'];

/**
 * Returns undefined when one of the three values is missing, for example in a file that was cut
 * off.
 */
function toThrottling(
  keyed: KeyedFile,
  throttledNsec: bigint | undefined,
): CpuThrottling | undefined {
  const periods = keyed.whole('nr_periods');
  const throttledPeriods = keyed.whole('nr_throttled');
  if (periods === undefined || throttledPeriods === undefined || throttledNsec === undefined)
    return undefined;
  return { periods, throttledPeriods, throttledNsec };
}

/**
 * Parses cgroup v1 `cpuacct.usage`: nanoseconds of CPU time.
 * @throws {@link MalformedCgroupFileError}
 */
export function parseCpuacctUsage(text: string): CpuStat {
  return { usageNsec: parseWhole('cpuacct.usage', 1, parseSingle('cpuacct.usage', text)) };
}

/**
 * Counts the CPUs on which a process may run, from line `Cpus_allowed_list` (`0-3,7`) of
 * `/proc/<pid>/status`.
 * @throws {@link MalformedCgroupFileError} when the line is missing or malformed.
 */
export function parseCpusAllowed(text: string): number {
  for (const { line, text: content } of iterateLines(text)) {
    if (content.startsWith(CPUS_ALLOWED))
      return countCpus(line, content.slice(CPUS_ALLOWED.length).trim());
  }
  throw new MalformedCgroupFileError(STATUS, 0, 'Cpus_allowed_list is missing');
}

/**
 * Counts the CPUs of a list without splitting the list, because a malformed list may be very long.
 */
function countCpus(line: number, list: string): number {
  let count = 0;
  for (let start = 0; start <= list.length;) {
    const comma = list.indexOf(',', start);
    const end = comma < 0 ? list.length : comma;
    const range = list.slice(start, end);
    const [first = '', last = first] = range.split('-', 2);
    const cpus =
      Number(parseWhole(STATUS, line, last)) - Number(parseWhole(STATUS, line, first)) + 1;
    if (cpus < 1)
      throw new MalformedCgroupFileError(
        STATUS,
        line,
        `${JSON.stringify(range)} is not a range of CPUs`,
      );
    count += cpus;
    start = end + 1;
  }
  return count;
}

const STATUS = '/proc/<pid>/status';
const CPUS_ALLOWED = 'Cpus_allowed_list:';
