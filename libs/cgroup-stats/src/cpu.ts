import { linesOf, parseKeyed, parseSingle, parseWhole } from './lines.js';
import { MalformedCgroupFileError } from './malformed.js';

/** A bandwidth limit: so much CPU time in each period. Both above 0. */
export interface CpuQuota {
  readonly quotaUsec: number;
  readonly periodUsec: number;
}

/** CPU time of a group since it was created, nanoseconds. */
export interface CpuStat {
  readonly usageNsec: bigint;
  readonly userNsec?: bigint;
  readonly systemNsec?: bigint;
}

/**
 * Parses cgroup v2 `cpu.max`: `max 100000` or `150000 100000`.
 * @returns Undefined when there is no limit.
 * @throws {@link MalformedCgroupFileError}
 * @see Linux kernel, Documentation/admin-guide/cgroup-v2.rst, "CPU Interface Files"
 */
export function parseCpuMax(text: string): CpuQuota | undefined {
  const fields = parseSingle('cpu.max', text).split(/\s+/);
  const [quota = '', period = String(DEFAULT_PERIOD_USEC)] = fields;
  if (fields.length > 2) throw new MalformedCgroupFileError('cpu.max', 1, 'more than two fields');
  const periodUsec = positive('cpu.max', period);
  return quota === 'max' ? undefined : { quotaUsec: positive('cpu.max', quota), periodUsec };
}

/** What the kernel uses when only the quota was written. */
const DEFAULT_PERIOD_USEC = 100_000;

/**
 * Parses cgroup v1 `cpu.cfs_quota_us` (−1: no limit) and `cpu.cfs_period_us`.
 * @returns Undefined when there is no limit.
 * @throws {@link MalformedCgroupFileError}
 * @see Linux kernel, Documentation/scheduler/sched-bwc.rst
 */
export function parseCfsQuota(quotaText: string, periodText: string): CpuQuota | undefined {
  const quota = parseSingle('cpu.cfs_quota_us', quotaText);
  const periodUsec = positive('cpu.cfs_period_us', parseSingle('cpu.cfs_period_us', periodText));
  return quota === '-1' ? undefined : { quotaUsec: positive('cpu.cfs_quota_us', quota), periodUsec };
}

function positive(file: string, text: string): number {
  const value = Number(parseWhole(file, 1, text));
  if (value === 0) throw new MalformedCgroupFileError(file, 1, '0 is no quota and no period');
  return value;
}

/**
 * Parses cgroup v2 `cpu.stat`; its microseconds become nanoseconds.
 * @param text - `key value` lines in any order; unknown keys are skipped, as newer kernels add some.
 * @throws {@link MalformedCgroupFileError} when `usage_usec` is missing or a value is not a whole number.
 */
export function parseCpuStat(text: string): CpuStat {
  const keyed = parseKeyed('cpu.stat', text);
  const user = keyed.whole('user_usec');
  const system = keyed.whole('system_usec');
  return {
    usageNsec: keyed.needed('usage_usec') * NSEC_PER_USEC,
    ...(user === undefined ? {} : { userNsec: user * NSEC_PER_USEC }),
    ...(system === undefined ? {} : { systemNsec: system * NSEC_PER_USEC }),
  };
}

const NSEC_PER_USEC = 1_000n;

/** Parses cgroup v1 `cpuacct.usage`: nanoseconds of CPU time. @throws {@link MalformedCgroupFileError} */
export function parseCpuacctUsage(text: string): CpuStat {
  return { usageNsec: parseWhole('cpuacct.usage', 1, parseSingle('cpuacct.usage', text)) };
}

/**
 * Counts the CPUs this process may run on from `/proc/<pid>/status`, line `Cpus_allowed_list` (`0-3,7`).
 * @throws {@link MalformedCgroupFileError} when the line is missing or does not read as a list.
 */
export function parseCpusAllowed(text: string): number {
  const found = linesOf(text).find(({ text: content }) => content.startsWith(CPUS_ALLOWED));
  if (found === undefined) throw new MalformedCgroupFileError(STATUS, 0, 'Cpus_allowed_list is missing');
  let count = 0;
  for (const range of found.text.slice(CPUS_ALLOWED.length).trim().split(',')) {
    const [first = '', last = first] = range.split('-', 2);
    const cpus = Number(parseWhole(STATUS, found.line, last)) - Number(parseWhole(STATUS, found.line, first)) + 1;
    if (cpus < 1) throw new MalformedCgroupFileError(STATUS, found.line, `${JSON.stringify(range)} is no range`);
    count += cpus;
  }
  return count;
}

const STATUS = '/proc/<pid>/status';
const CPUS_ALLOWED = 'Cpus_allowed_list:';

/** A reading of a CPU counter. */
export interface CpuSample {
  readonly usageNsec: bigint;
  /** When it was read, monotonic milliseconds. */
  readonly atMs: number;
}

/**
 * Average use between two readings, in thousandths of a CPU, rounded.
 * @returns Undefined when no time has passed, or the counter has gone back because it began anew.
 */
export function cpuMillisBetween(earlier: CpuSample, later: CpuSample): number | undefined {
  const elapsedMs = later.atMs - earlier.atMs;
  const usedNsec = later.usageNsec - earlier.usageNsec;
  if (elapsedMs <= 0 || usedNsec < 0n) return undefined;
  return Math.round(Number(usedNsec) / 1_000 / elapsedMs);
}
