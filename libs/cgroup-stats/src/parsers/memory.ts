import { definedFields } from '@cloudless/base';
import { parseKeyed } from './lines.js';

/** Values of `/proc/meminfo` in bytes. */
export interface Meminfo {
  readonly totalBytes: number;
  readonly freeBytes: number;
  /**
   * Memory that is available without swapping. On kernels before 3.14, which do not report this
   * value, the sum of MemFree, Buffers and Cached.
   */
  readonly availableBytes: number;
  readonly swapTotalBytes: number;
  readonly swapFreeBytes: number;
}

/**
 * Parses `/proc/meminfo`.
 * @throws {@link MalformedCgroupFileError} when MemTotal or MemFree is missing or not a whole
 *   number.
 * @see Linux kernel, Documentation/filesystems/proc.rst, "meminfo"
 */
export function parseMeminfo(text: string): Meminfo {
  const keyed = parseKeyed('/proc/meminfo', text.replaceAll(/ kB$/gm, ''), MEMINFO_KEYS, /:\s*/);
  const bytesOf = (key: string): number | undefined => {
    const kibibytes = keyed.whole(key);
    return kibibytes === undefined ? undefined : Number(kibibytes * 1_024n);
  };
  const totalBytes = Number(keyed.requireWhole('MemTotal') * 1_024n);
  const freeBytes = Number(keyed.requireWhole('MemFree') * 1_024n);
  const reclaimable = freeBytes + (bytesOf('Buffers') ?? 0) + (bytesOf('Cached') ?? 0);
  return {
    totalBytes,
    freeBytes,
    availableBytes: Math.min(totalBytes, bytesOf('MemAvailable') ?? reclaimable),
    swapTotalBytes: bytesOf('SwapTotal') ?? 0,
    swapFreeBytes: bytesOf('SwapFree') ?? 0,
  };
}

const MEMINFO_KEYS = [
  'MemTotal',
  'MemFree',
  'MemAvailable',
  'Buffers',
  'Cached',
  'SwapTotal',
  'SwapFree',
];

/** Values of `memory.stat` for a group and all groups below it, bytes. */
export interface MemoryStat {
  /** Page cache that the kernel reclaims first when memory is short. */
  readonly inactiveFileBytes: number;
  /** Page cache including tmpfs and shared memory: v2 `file`, v1 `cache`. */
  readonly fileBytes?: number;
  /** Anonymous memory: v2 `anon`, v1 `rss`. */
  readonly anonBytes?: number;
  /** Swapped-out memory. Only v1 with swap accounting; v2 has a separate file. */
  readonly swapBytes?: number;
}

/**
 * Parses `memory.stat`. In v1 the plain keys cover only the group itself, so `total_inactive_file`
 * is preferred over `inactive_file`, and so on.
 * @throws {@link MalformedCgroupFileError} when both `total_inactive_file` and `inactive_file` are
 *   missing, or a value is not a whole number.
 * @see Linux kernel, Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst
 */
export function parseMemoryStat(text: string): MemoryStat {
  const keyed = parseKeyed('memory.stat', text, STAT_KEYS);
  const firstPresent = (...keys: readonly string[]): number | undefined => {
    for (const key of keys) {
      const value = keyed.whole(key);
      if (value !== undefined) return Number(value);
    }
    return undefined;
  };
  const [fileBytes, anonBytes] = [
    firstPresent('total_cache', 'cache', 'file'),
    firstPresent('total_rss', 'rss', 'anon'),
  ];
  const swapBytes = firstPresent('total_swap', 'swap');
  return {
    inactiveFileBytes:
      firstPresent('total_inactive_file') ?? Number(keyed.requireWhole('inactive_file')),
    ...definedFields({ fileBytes, anonBytes, swapBytes }),
  };
}

const TOTALS = ['inactive_file', 'cache', 'rss', 'swap'];
const STAT_KEYS = [...TOTALS, ...TOTALS.map((key) => `total_${key}`), 'file', 'anon'];

/**
 * Returns the working set: usage minus inactive page cache, at least 0, as the kubelet and cAdvisor
 * compute it.
 */
export function workingSetBytes(
  usageBytes: number,
  stat: Pick<MemoryStat, 'inactiveFileBytes'>,
): number {
  return Math.max(0, usageBytes - stat.inactiveFileBytes);
}
