import { existsSync } from 'node:fs';
import { readFile, rmdir, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { CloudlessError, errorMessageOf } from '@cloudless/base';
import { makeDirectory } from '@cloudless/app-kit';
import { readProcess } from './host-processes.js';

/** Mount point of the cgroup hierarchies. */
export const CGROUP_ROOT = '/sys/fs/cgroup';
/** File of a cgroup with the largest number of its processes and threads, or `max`. */
const FILE = 'pids.max';

/**
 * Smallest limit during a start: the program that starts the container (runc) has threads in the
 * cgroup of the container. 10 threads were observed.
 */
const STARTING_PIDS = 32;

/**
 * Returns the limit to set while a container is being started. {@link PidsLimit.enforce} sets the
 * requested limit afterwards.
 */
export function toStartingLimit(limit: number): number {
  return Math.max(limit, STARTING_PIDS);
}

/**
 * Returns true when all controllers are in one cgroup v2 hierarchy. The container runtime then sets
 * the limit of processes itself, on request.
 * @param root - Mount point of the cgroup hierarchies.
 */
export function isUnified(root = CGROUP_ROOT): boolean {
  return existsSync(path.join(root, 'cgroup.controllers'));
}

/**
 * Limits the processes and threads of containers. The Container Runtime Interface has no field for
 * this limit in cgroup v1. There the cgroup of a container is created with its limit before the
 * runtime adds the first process. Runtimes adopt an existing empty cgroup, and remove it with the
 * container.
 * @see Linux kernel, Documentation/admin-guide/cgroup-v1/pids.rst; runc, libcontainer/cgroups/fs
 *   (`pids.go` writes `pids.max` only when the container configuration has a limit)
 */
export class PidsLimit {
  constructor(
    private readonly root = CGROUP_ROOT,
    private readonly proc = '/proc',
  ) {}

  /**
   * Creates the cgroup of a container that was not started yet. Creates nothing when the runtime
   * does not report the path of the cgroup, or when systemd creates the cgroup; {@link
   * PidsLimit.enforce} then sets the limit.
   * @param info - Verbose status of the container.
   * @returns A function that removes the cgroup, unless the cgroup contains processes.
   * @throws kind `precondition` when the cgroup or its limit cannot be written.
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
   * Sets the limit of the cgroup of a process, of either cgroup version, unless a lower limit is
   * set already.
   * @returns False when the process runs in the root cgroup, which has no limit. True when the
   *   limit is set, or the process has ended.
   * @throws kind `precondition` when the limit cannot be written.
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
   * Finds the directory of the cgroup that limits processes.
   * @param groups - Text of `/proc/<pid>/cgroup`.
   * @returns Undefined when the process is in the root cgroup, as an ended process is.
   * @see cgroups(7), "/proc/pid/cgroup": `number:controllers:path`, with no controllers for v2
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
 * Returns the path of the cgroup from the verbose status that containerd and CRI-O report;
 * undefined when the status has no path, or a path in the form of systemd (`slice:prefix:name`).
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
    { cause },
  );
}
