import { statfs } from 'node:fs/promises';
import { cpus, freemem, totalmem } from 'node:os';
import { dirname } from 'node:path';

/**
 * How full a file system is, as `df` counts: what only root may use is neither used nor there.
 * Bytes.
 */
export interface DiskUse {
  readonly usedBytes: number;
  readonly totalBytes: number;
}

/**
 * What the runtime says of the machine on any operating system; stands in for what `/proc` does not
 * say.
 */
export interface HostMachine {
  cpuCount(): number;
  /**
   * CPU time spent on anything but idling since the machine started, all CPUs together,
   * nanoseconds.
   */
  cpuBusyNsec(): bigint;
  totalMemoryBytes(): number;
  freeMemoryBytes(): number;
  /**
   * Of the file system that holds `path`, or would: for a path that is not there yet its nearest
   * parent speaks.
   */
  diskUseOf(path: string): Promise<DiskUse>;
}

/** The machine this process runs on. */
export const thisMachine: HostMachine = {
  cpuCount: () => Math.max(1, cpus().length), // none where /proc is hidden
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
    for (let at = path; ; at = dirname(at)) {
      try {
        const { bsize, blocks, bfree, bavail } = await statfs(at, { bigint: true });
        const used = blocks - bfree;
        return { usedBytes: Number(used * bsize), totalBytes: Number((used + bavail) * bsize) };
      } catch (reason) {
        if (!isAbsent(reason) || at === dirname(at)) throw reason;
      }
    }
  },
};

const NSEC_PER_MSEC = 1_000_000n;

/**
 * Whether a file is not there, or not for us: the ways in which kernels leave out what they do not
 * support.
 */
export function isAbsent(reason: unknown): boolean {
  if (typeof reason !== 'object' || reason === null || !('code' in reason)) return false;
  return typeof reason.code === 'string' && ABSENT.has(reason.code);
}

const ABSENT: ReadonlySet<string> = new Set([
  'ENOENT',
  'ENOTDIR',
  'ESRCH',
  'EACCES',
  'EPERM',
  'ENODEV',
  'EOPNOTSUPP',
]);
