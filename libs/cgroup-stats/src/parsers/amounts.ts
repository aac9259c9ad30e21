import { parseSingle, parseWhole } from './lines.js';

/**
 * Parses a file with one current amount: `memory.current`, `memory.peak`, `memory.swap.current`
 * (v2), `memory.usage_in_bytes`, `memory.max_usage_in_bytes`, `memory.memsw.usage_in_bytes` (v1),
 * `pids.current`.
 * @param file - File name for error messages.
 * @returns The amount in the unit of the file: bytes, or a number of processes.
 * @throws {@link MalformedCgroupFileError}
 */
export function parseAmount(file: string, text: string): number {
  return Number(parseWhole(file, 1, parseSingle(file, text)));
}

/**
 * Parses a file with one limit: `memory.max`, `memory.swap.max`, `pids.max` (`max` for no limit),
 * `memory.limit_in_bytes`, `memory.memsw.limit_in_bytes` (v1).
 * @param file - File name for error messages.
 * @returns Undefined when there is no limit, or a value of 2^62 or more: without a limit v1 reports
 *   the largest number of whole pages in 63 bits, which depends on the page size.
 * @throws {@link MalformedCgroupFileError}
 */
export function parseLimit(file: string, text: string): number | undefined {
  const value = parseSingle(file, text);
  if (value === 'max') return undefined;
  const limit = parseWhole(file, 1, value);
  return limit >= UNLIMITED_FROM ? undefined : Number(limit);
}

/** Smallest value that counts as no limit. No machine has that much memory. */
const UNLIMITED_FROM = 1n << 62n;

/**
 * Parses a file with one counter: `cpuacct.usage_user`, `cpuacct.usage_sys` (v1, nanoseconds).
 * @param file - File name for error messages.
 * @throws {@link MalformedCgroupFileError}
 */
export function parseCounter(file: string, text: string): bigint {
  return parseWhole(file, 1, parseSingle(file, text));
}
