import { join } from 'node:path';
import {
  detectCgroupLayout,
  locateCgroup,
  parseAmount,
  parseCfsQuota,
  parseCgroupMounts,
  parseCpuMax,
  parseCpuStat,
  parseCpuacctUsage,
  parseLimit,
  parseMemoryStat,
  parseProcCgroup,
  quotaToMillis,
  workingSetBytes,
  type CgroupLayout,
  type CgroupLocation,
  type CpuQuota,
} from '@cloudless/cgroup-stats';
import { MAX_MOUNTINFO_BYTES, hostFiles } from './file-system.js';

/** A limit, and the group that sets it: the group of this process or an ancestor. */
export interface GroupLimit<Limit> {
  readonly limit: Limit;
  readonly version: 1 | 2;
  readonly directory: string;
}

/**
 * Limits and use of the groups of this process. Methods resolve with undefined when the kernel does
 * not have the file, and reject with MalformedCgroupFileError when a file is malformed.
 */
export interface OwnGroups {
  readonly layout: CgroupLayout;
  /** Returns the lowest quota among the group and its ancestors; undefined when there is none. */
  cpuQuota(): Promise<GroupLimit<CpuQuota> | undefined>;
  /**
   * Returns the lowest memory limit among the group and its ancestors in bytes; undefined when
   * there is none.
   */
  memoryLimit(): Promise<GroupLimit<number> | undefined>;
  /** Returns the CPU time, in nanoseconds, of the group that sets the quota. */
  cpuUsageNsec(quota: GroupLimit<CpuQuota>): Promise<bigint | undefined>;
  /**
   * Returns the memory use, in bytes without reclaimable page cache, of the group that sets the
   * limit.
   */
  memoryUsedBytes(limit: GroupLimit<number>): Promise<number | undefined>;
}

/**
 * Locates the groups of this process.
 * @param procRoot - Mount point of `proc`.
 * @param sysRoot - Mount point of `sysfs`.
 */
export async function openOwnGroups(procRoot: string, sysRoot: string): Promise<OwnGroups> {
  const mounts = parseCgroupMounts(
    (await readTextIfPresent(join(procRoot, 'self/mountinfo'))) ?? '',
  );
  const memberships = parseProcCgroup(
    (await readTextIfPresent(join(procRoot, 'self/cgroup'))) ?? '',
  );
  const locate = (controller: string): CgroupLocation | undefined => {
    const found = locateCgroup(mounts, memberships, controller);
    return (
      found && {
        ...found,
        directories: found.directories.map((directory) => replaceSysRoot(directory, sysRoot)),
      }
    );
  };
  return {
    layout: detectCgroupLayout(mounts),
    cpuQuota: () => findLowest(locate('cpu'), readQuota, quotaToMillis),
    memoryLimit: () => findLowest(locate('memory'), readMemoryLimit, (bytes) => bytes),
    async cpuUsageNsec({ version, directory }) {
      if (version === 2)
        return (await parseIfPresent(join(directory, 'cpu.stat'), parseCpuStat))?.usageNsec;
      // Where cpuacct is not mounted together with cpu, use this process's own cpuacct group.
      const accounting = [directory, ...(locate('cpuacct')?.directories ?? [])];
      for (const candidate of accounting) {
        const usage = await parseIfPresent(join(candidate, 'cpuacct.usage'), parseCpuacctUsage);
        if (usage !== undefined) return usage.usageNsec;
      }
      return undefined;
    },
    async memoryUsedBytes({ version, directory }) {
      const file = version === 2 ? 'memory.current' : 'memory.usage_in_bytes';
      const usage = await parseIfPresent(join(directory, file), (text) => parseAmount(file, text));
      const stat = await parseIfPresent(join(directory, 'memory.stat'), parseMemoryStat);
      return usage === undefined
        ? undefined
        : workingSetBytes(usage, stat ?? { inactiveFileBytes: 0 });
    },
  };
}

/**
 * Returns the lowest limit among the group and its ancestors; undefined when none has a limit.
 * @param readIn - Reads the limit in one directory.
 * @param toComparable - Converts a limit to a number for the comparison.
 */
async function findLowest<Limit>(
  location: CgroupLocation | undefined,
  readIn: (directory: string, version: 1 | 2) => Promise<Limit | undefined>,
  toComparable: (limit: Limit) => number,
): Promise<GroupLimit<Limit> | undefined> {
  let lowest: GroupLimit<Limit> | undefined;
  for (const directory of location?.directories ?? []) {
    const version = location?.version ?? 2;
    const limit = await readIn(directory, version);
    if (
      limit !== undefined &&
      (lowest === undefined || toComparable(limit) < toComparable(lowest.limit))
    )
      lowest = { limit, version, directory };
  }
  return lowest;
}

async function readQuota(directory: string, version: 1 | 2): Promise<CpuQuota | undefined> {
  if (version === 2) return parseIfPresent(join(directory, 'cpu.max'), parseCpuMax);
  const period = await readTextIfPresent(join(directory, 'cpu.cfs_period_us'));
  return period === undefined
    ? undefined
    : parseIfPresent(join(directory, 'cpu.cfs_quota_us'), (quota) => parseCfsQuota(quota, period));
}

function readMemoryLimit(directory: string, version: 1 | 2): Promise<number | undefined> {
  const file = version === 2 ? 'memory.max' : 'memory.limit_in_bytes';
  return parseIfPresent(join(directory, file), (text) => parseLimit(file, text));
}

/**
 * Replaces `/sys` at the beginning of a mount point, for tests with another mount point of `sysfs`.
 */
const replaceSysRoot = (path: string, sysRoot: string): string =>
  path.startsWith('/sys/') ? join(sysRoot, path.slice('/sys'.length)) : path;

/** Returns the content of a file; undefined when it does not exist. */
const readTextIfPresent = (path: string): Promise<string | undefined> =>
  hostFiles.readText(path, MAX_MOUNTINFO_BYTES);

/** Returns the parsed content of a file; undefined when it does not exist. */
export async function parseIfPresent<Value>(
  path: string,
  parse: (text: string) => Value,
): Promise<Value | undefined> {
  const text = await readTextIfPresent(path);
  return text === undefined ? undefined : parse(text);
}
