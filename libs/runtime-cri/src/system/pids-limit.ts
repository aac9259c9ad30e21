import { existsSync } from 'node:fs';
import { readFile, rmdir, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { CloudlessError, errorMessageOf } from '@cloudless/base';
import { makeDirectory } from '@cloudless/app-kit';
import { readProcess } from './host-processes.js';

/** Mount point of the cgroup hierarchies. */
const CGROUP_ROOT = '/sys/fs/cgroup';
const FILE = 'pids.max';

/**
 * Smallest limit during the start: the program that starts a container has threads of its own in
 * the group; 10 were observed.
 */
const STARTING_PIDS = 32;

/**
 * Returns the limit while a container is being started; {@link PidsLimit.enforce} sets the requested
 * limit afterwards.
 */
export function toStartingLimit(limit: number): number {
  return Math.max(limit, STARTING_PIDS);
}

/**
 * Whether all controllers are in one hierarchy of cgroup v2, where the runtime writes the limit
 * itself on request.
 */
export function isUnified(root = CGROUP_ROOT): boolean {
  return existsSync(path.join(root, 'cgroup.controllers'));
}

/**
 * Limits processes and threads in cgroup v1, for which the container runtime interface has no
 * field. The group is created with its limit before the runtime adds the first process. Runtimes
 * adopt an empty group and remove it later.
 * @see Linux kernel, Documentation/admin-guide/cgroup-v1/pids.rst; runc, libcontainer/cgroups/fs
 *   (`pids.go` writes only a limit it was given)
 */
export class PidsLimit {
  constructor(
    private readonly root = CGROUP_ROOT,
    private readonly proc = '/proc',
  ) {}

  /**
   * Creates the group of a container that was not started yet.
   * @param info - Verbose status of the container. Nothing is created when the runtime does not
   *   report the path of the group, or systemd creates the group; {@link PidsLimit.enforce} then sets
   *   the limit.
   * @returns Removes the group, unless it contains processes.
   */
  async prepare(
    info: Readonly<Record<string, string>>,
    limit: number,
  ): Promise<() => Promise<void>> {
    const group = parseGroupPath(info);
    if (group === undefined) return async () => undefined;
    const directory = path.join(this.root, 'pids', group);
    try {
      await makeDirectory(directory);
      await writeFile(path.join(directory, FILE), String(toStartingLimit(limit)), { flag: 'r+' });
    } catch (reason) {
      throw createPidsLimitError(directory, reason);
    }
    return () => rmdir(directory).catch(() => undefined);
  }

  /**
   * Sets the limit for a running process, of either cgroup version. A process that has ended needs
   * no limit.
   * @returns Whether the limit is set; false when the process is only in the root group, which has
   *   no limits.
   */
  async enforce(pid: number, limit: number): Promise<boolean> {
    const directory = this.findDirectory(
      await readFile(path.join(this.proc, String(pid), 'cgroup'), 'utf8').catch(() => ''),
    );
    if (directory === undefined) return readProcess(pid, this.proc) === undefined;
    const file = path.join(directory, FILE);
    try {
      if (Number(await readFile(file, 'utf8')) <= limit) return true; // `max` is not a number
      await writeFile(file, String(limit), { flag: 'r+' });
      return true;
    } catch (reason) {
      if (readProcess(pid, this.proc) === undefined) return true;
      throw createPidsLimitError(directory, reason);
    }
  }

  /**
   * Finds the directory of the group in `/proc/<pid>/cgroup`.
   * @see cgroups(7), "/proc/pid/cgroup": `number:controllers:path`, with no controllers for v2;
   *   ended processes are in the root group
   */
  private findDirectory(groups: string): string | undefined {
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
 * Parses the path of the group in the runtime's specification, as containerd and CRI-O report it;
 * undefined when systemd names the group.
 */
function parseGroupPath(info: Readonly<Record<string, string>>): string | undefined {
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

function createPidsLimitError(directory: string, cause: unknown): CloudlessError {
  return new CloudlessError(
    'precondition',
    `limits.pids: the limit cannot be set in ${directory}: ${errorMessageOf(cause)}`,
    {
      cause,
    },
  );
}
