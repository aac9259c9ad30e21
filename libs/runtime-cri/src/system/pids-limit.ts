import { existsSync } from 'node:fs';
import { readFile, rmdir, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { CloudlessError, errorMessageOf } from '@cloudless/base';
import { makeDirectory } from '@cloudless/system';
import { readProcess } from './host-processes.js';

/** Where Linux shows its control groups. */
const ROOT = '/sys/fs/cgroup';
const FILE = 'pids.max';

/**
 * The program that starts a container has threads of its own, and is in the group by then; seen:
 * 10.
 */
const STARTING_PIDS = 32;

/**
 * The limit while a container is being started; {@link PidsLimit.hold} sets the one that was asked
 * for.
 */
export function whileStarting(limit: number): number {
  return Math.max(limit, STARTING_PIDS);
}

/**
 * Whether all controllers are in one tree, of cgroup v2: there a runtime writes the limit itself
 * when it is asked to.
 */
export function isUnified(root = ROOT): boolean {
  return existsSync(path.join(root, 'cgroup.controllers'));
}

/**
 * The limit of processes and threads in cgroup v1, which the interface of container runtimes has no
 * field for. The group is made with its limit before the runtime puts the first process into it;
 * runtimes take an empty group as theirs, and remove it.
 * @see Linux kernel, Documentation/admin-guide/cgroup-v1/pids.rst; runc, libcontainer/cgroups/fs
 *   (`pids.go` writes only a limit it was given)
 */
export class PidsLimit {
  constructor(
    private readonly root = ROOT,
    private readonly proc = '/proc',
  ) {}

  /**
   * Makes the group of a container that has not begun.
   * @param info - What the runtime tells of it verbosely; one that does not tell the group's path,
   *   or has systemd make the group, leaves it to {@link PidsLimit.hold}.
   * @returns Undoes it, unless there are processes in it.
   */
  async prepare(
    info: Readonly<Record<string, string>>,
    limit: number,
  ): Promise<() => Promise<void>> {
    const group = groupPathOf(info);
    if (group === undefined) return async () => undefined;
    const directory = path.join(this.root, 'pids', group);
    try {
      await makeDirectory(directory);
      await writeFile(path.join(directory, FILE), String(whileStarting(limit)), { flag: 'r+' });
    } catch (reason) {
      throw failed(directory, reason);
    }
    return () => rmdir(directory).catch(() => undefined);
  }

  /**
   * Sees to it that the limit holds for a process that runs, of either version. One that has ended
   * needs none.
   * @returns Whether it does; not when the process is in no group but the root, which knows no
   *   limit.
   */
  async hold(pid: number, limit: number): Promise<boolean> {
    const directory = this.directoryIn(
      await readFile(path.join(this.proc, String(pid), 'cgroup'), 'utf8').catch(() => ''),
    );
    if (directory === undefined) return readProcess(pid, this.proc) === undefined;
    const file = path.join(directory, FILE);
    try {
      if (Number(await readFile(file, 'utf8')) <= limit) return true; // `max` is no number
      await writeFile(file, String(limit), { flag: 'r+' });
      return true;
    } catch (reason) {
      if (readProcess(pid, this.proc) === undefined) return true;
      throw failed(directory, reason);
    }
  }

  /**
   * @see cgroups(7), "/proc/pid/cgroup": `number:controllers:path`, with no controllers for v2; the
   * root is also where the ended are
   */
  private directoryIn(groups: string): string | undefined {
    for (const line of groups.split('\n')) {
      const [, controllers = '', ...rest] = line.split(':');
      const group = rest.join(':');
      if (group === '/') continue;
      if (controllers.split(',').includes('pids')) return path.join(this.root, 'pids', group);
      if (controllers === '' && group !== '' && isUnified(this.root))
        return path.join(this.root, group);
    }
    return undefined;
  }
}

/**
 * The path of the group in the runtime's own specification, as containerd and CRI-O tell it;
 * undefined when systemd names it.
 */
function groupPathOf(info: Readonly<Record<string, string>>): string | undefined {
  try {
    const { runtimeSpec } = JSON.parse(info['info'] ?? '{}') as {
      readonly runtimeSpec?: { readonly linux?: { readonly cgroupsPath?: unknown } };
    };
    const group = runtimeSpec?.linux?.cgroupsPath;
    return typeof group === 'string' &&
      group.startsWith('/') &&
      path.normalize(group) === group &&
      group.length > 1
      ? group
      : undefined;
  } catch {
    return undefined;
  }
}

function failed(directory: string, cause: unknown): CloudlessError {
  return new CloudlessError(
    'precondition',
    `limits.pids: the limit cannot be set in ${directory}: ${errorMessageOf(cause)}`,
    {
      cause,
    },
  );
}
