import { parseKeyed, parseSingle, parseWhole } from './lines.js';

/** What `/proc/meminfo` says, bytes. */
export interface Meminfo {
  readonly totalBytes: number;
  readonly freeBytes: number;
  /** What can be had without swapping; kernels before 3.14 do not say, then free + buffers + cached. */
  readonly availableBytes: number;
  readonly swapTotalBytes: number;
  readonly swapFreeBytes: number;
}

/**
 * Parses `/proc/meminfo`.
 * @throws {@link MalformedCgroupFileError} when MemTotal or MemFree is missing or no whole number.
 * @see Linux kernel, Documentation/filesystems/proc.rst, "meminfo"
 */
export function parseMeminfo(text: string): Meminfo {
  const keyed = parseKeyed('/proc/meminfo', text.replaceAll(/ kB$/gm, ''), /:\s*/);
  const bytes = (key: string): number | undefined => {
    const kibibytes = keyed.whole(key);
    return kibibytes === undefined ? undefined : Number(kibibytes * 1_024n);
  };
  const totalBytes = Number(keyed.needed('MemTotal') * 1_024n);
  const freeBytes = Number(keyed.needed('MemFree') * 1_024n);
  const reclaimable = freeBytes + (bytes('Buffers') ?? 0) + (bytes('Cached') ?? 0);
  return {
    totalBytes,
    freeBytes,
    availableBytes: Math.min(totalBytes, bytes('MemAvailable') ?? reclaimable),
    swapTotalBytes: bytes('SwapTotal') ?? 0,
    swapFreeBytes: bytes('SwapFree') ?? 0,
  };
}

/** Parses cgroup v2 `memory.max`, bytes. @returns Undefined for `max`. @throws {@link MalformedCgroupFileError} */
export function parseMemoryMax(text: string): number | undefined {
  const value = parseSingle('memory.max', text);
  return value === 'max' ? undefined : limit(parseWhole('memory.max', 1, value));
}

/**
 * Parses cgroup v1 `memory.limit_in_bytes`.
 * @returns Undefined when there is no limit: the kernel then gives the most whole pages that 63 bits hold, which depends on
 *   the page size; no machine has that much, so anything from 2^62 on counts as none.
 * @throws {@link MalformedCgroupFileError}
 */
export function parseMemoryLimitInBytes(text: string): number | undefined {
  return limit(parseWhole('memory.limit_in_bytes', 1, parseSingle('memory.limit_in_bytes', text)));
}

const limit = (bytes: bigint): number | undefined => (bytes >= UNLIMITED_FROM ? undefined : Number(bytes));

const UNLIMITED_FROM = 1n << 62n;

/** Parses `memory.current` (v2) or `memory.usage_in_bytes` (v1): bytes, page cache included. @throws {@link MalformedCgroupFileError} */
export function parseMemoryUsage(text: string): number {
  return Number(parseWhole('memory usage', 1, parseSingle('memory usage', text)));
}

/** What `memory.stat` says of a group and all below it, bytes. */
export interface MemoryStat {
  /** Page cache that the kernel drops first when memory is short. */
  readonly inactiveFileBytes: number;
}

/**
 * Parses `memory.stat`. In v1 the plain keys are about the group alone, so `total_inactive_file` comes before `inactive_file`.
 * @throws {@link MalformedCgroupFileError} when neither is there or its value is not a whole number.
 */
export function parseMemoryStat(text: string): MemoryStat {
  const keyed = parseKeyed('memory.stat', text);
  return { inactiveFileBytes: Number(keyed.whole('total_inactive_file') ?? keyed.needed('inactive_file')) };
}

/** Memory in use that cannot simply be dropped, as other orchestrators count it; never below 0. */
export function workingSetBytes(usageBytes: number, stat: MemoryStat): number {
  return Math.max(0, usageBytes - stat.inactiveFileBytes);
}
