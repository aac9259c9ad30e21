import { readFileSync } from 'node:fs';
import { CloudlessError, errorMessageOf } from '@cloudless/base';
import { runTool } from '../system/run-tool.js';
import { parseMemoryMounts, findMemoryMountsWithin, resolvePath } from './mount-table.js';
import type { ContainerMount } from './mount-paths.js';

/** Options of a tmpfs mount. */
export interface MemoryMountOptions {
  /** Size limit in bytes. Default: half of the machine's memory, the default of the kernel. */
  readonly sizeBytes?: number | undefined;
  /** Permission bits of the mounted directory. */
  readonly mode: number;
  /** Group of the mounted directory. Default: the group of root. */
  readonly groupId?: number | undefined;
  /** True when files on the mount cannot be executed as programs. Default false. */
  readonly noExec?: boolean;
  /**
   * True to keep the files out of swap, where the kernel supports this (Linux 6.4). Default false.
   */
  readonly noSwap?: boolean;
}

/**
 * Mounts a tmpfs on a directory, unless a tmpfs is mounted there already. Uses the program `mount`,
 * because Node.js has no function for mounts.
 * @param field - Field of the request that needs the mount, for the message.
 * @throws kind `precondition`, naming the field, when the mount fails, for example because this
 *   process lacks the permission.
 * @see Linux kernel, Documentation/filesystems/tmpfs.rst
 */
export async function mountMemory(
  field: string,
  directory: string,
  { sizeBytes, mode, groupId, noExec = false, noSwap = false }: MemoryMountOptions,
): Promise<void> {
  const place = resolvePath(directory);
  if (findMemoryMountsWithin(place).includes(place)) return;
  const options = [
    ...['nosuid', 'nodev', `mode=${mode.toString(8)}`],
    ...(noExec ? ['noexec'] : []),
    ...(sizeBytes === undefined ? [] : [`size=${sizeBytes}`]),
    ...(groupId === undefined ? [] : [`gid=${groupId}`]),
  ];
  const mountWith = (all: readonly string[]): Promise<void> =>
    runTool('mount', ['-t', 'tmpfs', '-o', all.join(','), 'cloudless', place]);
  try {
    // An older kernel rejects an option that it does not know.
    if (noSwap) return await mountWith([...options, 'noswap']).catch(() => mountWith(options));
    await mountWith(options);
  } catch (reason) {
    const message = `${field}: files in memory cannot be mounted at ${directory}: ${errorMessageOf(reason)}`;
    throw new CloudlessError('precondition', message, { cause: reason });
  }
}

/**
 * Unmounts every tmpfs on a directory and below. Files that a container has open stay until the
 * container closes them.
 * @throws kind `precondition` when an unmount fails, for example because this process lacks the
 *   permission.
 */
export async function unmountMemory(directory: string): Promise<void> {
  for (const place of [...findMemoryMountsWithin(directory)].reverse()) {
    try {
      await runTool('umount', ['-l', place]); // lazily; the umount of busybox has only the short option
    } catch (reason) {
      const message = `files in memory cannot be unmounted at ${place}: ${errorMessageOf(reason)}`;
      throw new CloudlessError('precondition', message, { cause: reason });
    }
  }
}

/**
 * Checks that a container has the tmpfs mounts that this agent made for the container. A container
 * runtime in another mount namespace does not see these mounts and mounts the directory beneath,
 * which is on disk and has no size limit. The mounts are compared by the device number of their
 * file system, because a symbolic link in the image can change the path of a mount point.
 * @param pid - Process id of the container's main process. A process that has ended is not checked.
 * @param proc - Mount point of `proc`, for tests.
 * @throws kind `precondition`, naming the mount point.
 */
export function checkMemoryMounts(
  pid: number,
  mounts: readonly ContainerMount[],
  proc = '/proc',
): void {
  const memoryMounts = mounts.filter(({ inMemory }) => inMemory === true);
  if (memoryMounts.length === 0) return;
  const table = readTable(`${proc}/${pid}/mountinfo`);
  if (table === '') return;
  const containerDevices = new Set(parseMemoryMounts(table).map(({ device }) => device));
  const agentMounts = parseMemoryMounts(readTable(`${proc}/self/mountinfo`));
  const missing = memoryMounts.find(({ hostPath, mountPoint }) => {
    const place = resolvePath(mountPoint ?? hostPath);
    const mounted = agentMounts.findLast((mount) => mount.mountPoint === place);
    return mounted === undefined || !containerDevices.has(mounted.device);
  });
  if (missing === undefined) return;
  const { containerPath, hostPath } = missing;
  const cause = `the container runtime does not see what this agent mounts at ${hostPath}; run both in one mount namespace`;
  throw new CloudlessError('precondition', `${containerPath} is not in memory: ${cause}`);
}

/** Reads a mount table; empty when the process has ended. */
function readTable(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return '';
  }
}
