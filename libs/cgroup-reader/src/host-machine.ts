import { statfs } from 'node:fs/promises';
import { cpus, freemem, totalmem } from 'node:os';
import { dirname } from 'node:path';

/** Use of a file system, as `df` counts: blocks reserved for root are neither used nor available. */
export interface DiskUse {
  readonly usedBytes: number;
  readonly totalBytes: number;
  readonly usedInodes: number;
  /** 0: the file system has no fixed number of inodes, such as btrfs. */
  readonly totalInodes: number;
}

/** Values that Node.js reports on every operating system, for machines without `/proc`. */
export interface HostMachine {
  /** Number of CPUs, at least 1. */
  cpuCount(): number;
  /** CPU time of all CPUs together since the machine started, without idle time, in nanoseconds. */
  cpuBusyNsec(): bigint;
  totalMemoryBytes(): number;
  freeMemoryBytes(): number;
  /**
   * Use of the file system that holds `path`. For a path that does not exist yet, this is the file
   * system of the nearest existing parent.
   * @throws Errors of the file system unchanged.
   */
  diskUseOf(path: string): Promise<DiskUse>;
}

/** The machine on which this process runs. */
export const thisMachine: HostMachine = {
  cpuCount: () => Math.max(1, cpus().length), // the list is empty where /proc is hidden
  cpuBusyNsec() {
    const busyMs = cpus().reduce(
      (sum, { times }) => sum + times.user + times.nice + times.sys + times.irq,
      0,
    );
    return BigInt(Math.round(busyMs)) * NSEC_PER_MSEC;
  },
  totalMemoryBytes: totalmem,
  freeMemoryBytes: freemem,
  async diskUseOf(path) {
    for (let existing = path; ; existing = dirname(existing)) {
      try {
        const { bsize, blocks, bfree, bavail, files, ffree } = await statfs(existing, {
          bigint: true,
        });
        const used = blocks - bfree;
        return {
          usedBytes: Number(used * bsize),
          totalBytes: Number((used + bavail) * bsize),
          usedInodes: Number(files - ffree),
          totalInodes: Number(files),
        };
      } catch (reason) {
        if (!isMissingFile(reason) || existing === dirname(existing)) throw reason;
      }
    }
  },
};

const NSEC_PER_MSEC = 1_000_000n;

/**
 * Returns true when the error means that a file does not exist or is not readable for this user.
 * With one of these errors a kernel also answers for a feature that it does not support.
 */
export function isMissingFile(reason: unknown): boolean {
  if (typeof reason !== 'object' || reason === null || !('code' in reason)) return false;
  return typeof reason.code === 'string' && MISSING_FILE_CODES.has(reason.code);
}

const MISSING_FILE_CODES: ReadonlySet<string> = new Set([
  'ENOENT',
  'ENOTDIR',
  'ESRCH',
  'EACCES',
  'EPERM',
  'ENODEV',
  'EOPNOTSUPP',
]);
