import { mkdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { errorMessageOf } from '@cloudless/base';
import { parseCgroupMounts, type CgroupMount } from '@cloudless/cgroup-stats';

/** Cgroups that a test creates on this machine, one in each hierarchy, at the same path. */
export interface TestCgroup {
  /** Path below the root of each hierarchy; begins with `/`. */
  readonly path: string;
  /** Moves a process into the cgroups. */
  add(pid: number): void;
  /** Removes the cgroups. All their processes must have ended. */
  remove(): void;
}

/** Limits of the cgroups of a test. */
export interface TestCgroupLimits {
  readonly cpuMillis: number;
  readonly memoryBytes: number;
  /** Processes and threads. */
  readonly pids: number;
}

/**
 * Creates a cgroup with these limits in each hierarchy. The caller must remove them.
 * @returns The cgroups, or the reason why this user cannot create cgroups on this machine.
 */
export function createTestCgroup(name: string, limits: TestCgroupLimits): TestCgroup | string {
  if (process.getuid?.() !== 0) return 'needs root';
  const directories: string[] = [];
  /** Controllers whose limit was set. */
  const limited = new Set<string>();
  const remove = (): void => directories.splice(0).forEach((directory) => rmdirSync(directory));
  try {
    for (const mount of parseCgroupMounts(readFileSync('/proc/self/mountinfo', 'utf8')).filter(
      isRead,
    )) {
      const directory = join(mount.mountPoint, name);
      mkdirSync(directory);
      directories.push(directory);
      for (const [controller, file, value] of limitFiles(mount, limits)) {
        writeFileSync(join(directory, file), value, { flag: 'r+' });
        limited.add(controller);
      }
    }
  } catch (reason) {
    remove();
    return `needs cgroups that may be written: ${errorMessageOf(reason)}`;
  }
  const missing = ['cpu', 'memory', 'pids'].filter((controller) => !limited.has(controller));
  if (missing.length > 0) {
    remove();
    return `needs the cgroup controllers ${missing.join(', ')} below the top`;
  }
  const add = (pid: number): void =>
    directories.forEach((directory) => writeFileSync(join(directory, 'cgroup.procs'), `${pid}`));
  return { path: `/${name}`, add, remove };
}

/** v1 controllers of which the container reader reads files. */
const CONTROLLERS = ['cpu', 'cpuacct', 'memory', 'blkio', 'pids'];

/** Returns true when the container reader reads files of this hierarchy. */
const isRead = ({ version, root, controllers }: CgroupMount): boolean =>
  root === '/' &&
  (version === 2 || controllers.some((controller) => CONTROLLERS.includes(controller)));

/** Period of CPU quotas, the default of the kernel. */
const PERIOD_USEC = 100_000;

/**
 * Returns controller, file and value of each limit in one hierarchy. In v2 these are only the
 * limits of controllers that are enabled below the root; beside v1 no controller is.
 */
function limitFiles(
  { version, mountPoint, controllers }: CgroupMount,
  limits: TestCgroupLimits,
): readonly LimitFile[] {
  const enabled =
    version === 1
      ? controllers
      : readFileSync(join(mountPoint, 'cgroup.subtree_control'), 'utf8').trim().split(' ');
  const quotaUsec = (limits.cpuMillis * PERIOD_USEC) / 1_000;
  const files: readonly LimitFile[] =
    version === 1
      ? [
          ['cpu', 'cpu.cfs_quota_us', `${quotaUsec}`],
          ['memory', 'memory.limit_in_bytes', `${limits.memoryBytes}`],
          ['pids', 'pids.max', `${limits.pids}`],
        ]
      : [
          ['cpu', 'cpu.max', `${quotaUsec} ${PERIOD_USEC}`],
          ['memory', 'memory.max', `${limits.memoryBytes}`],
          ['pids', 'pids.max', `${limits.pids}`],
        ];
  return files.filter(([controller]) => enabled.includes(controller));
}

type LimitFile = readonly [controller: string, file: string, value: string];
