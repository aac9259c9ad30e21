import { readFileSync } from 'node:fs';
import { CloudlessError, errorMessageOf } from '@cloudless/base';
import { runTool } from '../system/run-tool.js';
import { parseMemoryMounts, findMemoryMountsWithin, resolvePath } from './mount-table.js';
import type { ContainerMount } from './mount-paths.js';

/** Options of the mount. */
export interface MemoryMountOptions {
  /** Size limit in bytes. Default: half of the machine's memory, as the kernel has it. */
  readonly sizeBytes?: number | undefined;
  /** Permissions of the mounted directory. */
  readonly mode: number;
  /** Group of the mounted directory. */
  readonly groupId?: number | undefined;
  /** Whether programs on the mount cannot be executed. */
  readonly noExec?: boolean;
}

/**
 * Mounts a tmpfs on a directory, unless one is mounted there. Uses the `mount` program, because
 * Node.js has no call for it.
 * @throws kind `precondition`, naming the field, when this process lacks the permission.
 * @see Linux kernel, Documentation/filesystems/tmpfs.rst
 */
export async function mountMemory(
  field: string,
  directory: string,
  { sizeBytes, mode, groupId, noExec = false }: MemoryMountOptions,
): Promise<void> {
  const place = resolvePath(directory);
  if (findMemoryMountsWithin(place).includes(place)) return;
  const options = [
    ...['nosuid', 'nodev', `mode=${mode.toString(8)}`],
    ...(noExec ? ['noexec'] : []),
    ...(sizeBytes === undefined ? [] : [`size=${sizeBytes}`]),
    ...(groupId === undefined ? [] : [`gid=${groupId}`]),
  ];
  try {
    await runTool('mount', ['-t', 'tmpfs', '-o', options.join(','), 'cloudless', place]);
  } catch (reason) {
    const message = `${field}: files in memory cannot be mounted at ${directory}: ${errorMessageOf(reason)}`;
    throw new CloudlessError('precondition', message, { cause: reason });
  }
}

/**
 * Unmounts every tmpfs on a directory and below it. Files that a container still has open stay
 * until the container closes them.
 * @throws kind `precondition` when this process lacks the permission.
 */
export async function unmountMemory(directory: string): Promise<void> {
  for (const place of [...findMemoryMountsWithin(directory)].reverse()) {
    try {
      await runTool('umount', ['-l', place]); // lazily; busybox knows only the short option
    } catch (reason) {
      const message = `files in memory cannot be unmounted at ${place}: ${errorMessageOf(reason)}`;
      throw new CloudlessError('precondition', message, { cause: reason });
    }
  }
}

/**
 * Checks that a container sees the tmpfs that was mounted for it. A container runtime in another
 * mount namespace would have mounted the directory below it, on disk and without a limit. Mounts
 * are compared by their file system, because an image may have a symbolic link on the way to the
 * mount point.
 * @param pid - Id of the container's main process. A process that has ended is not checked.
 * @throws kind `precondition`, naming the mount point.
 */
export function checkMemoryMounts(
  pid: number,
  mounts: readonly ContainerMount[],
  proc = '/proc',
): void {
  const wanted = mounts.filter(({ inMemory }) => inMemory === true);
  if (wanted.length === 0) return;
  const table = readTable(`${proc}/${pid}/mountinfo`);
  if (table === '') return;
  const found = new Set(parseMemoryMounts(table).map(({ device }) => device));
  const own = parseMemoryMounts(readTable(`${proc}/self/mountinfo`));
  const missing = wanted.find(({ hostPath }) => {
    const mounted = own.findLast(({ mountPoint }) => mountPoint === resolvePath(hostPath));
    return mounted === undefined || !found.has(mounted.device);
  });
  if (missing === undefined) return;
  const { containerPath, hostPath } = missing;
  const why = `the container runtime does not see what this agent mounts at ${hostPath}; run both in one mount namespace`;
  throw new CloudlessError('precondition', `${containerPath} is not in memory: ${why}`);
}

function readTable(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return '';
  }
}
