import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { promisify } from 'node:util';
import { CloudlessError, errorMessageOf } from '@cloudless/base';
import { memoryMountsWithin } from './mount-table.js';
import type { PlannedMount } from './mount-paths.js';

const run = promisify(execFile);

/** What files in memory are like. */
export interface MemoryMountOptions {
  /** Absent: half of the machine's memory, as the kernel has it. */
  readonly sizeBytes?: number | undefined;
  /** Permissions of the directory itself. */
  readonly mode: number;
  /** Group of the directory itself. */
  readonly groupId?: number | undefined;
  /** No program in it can be started. */
  readonly noExec?: boolean;
}

/**
 * Mounts files in memory on a directory, unless they are there. The `mount` program does it, as Node.js has no call for it.
 * @throws kind `precondition`, naming the field, when this process may not.
 * @see Linux kernel, Documentation/filesystems/tmpfs.rst
 */
export async function mountMemory(
  field: string,
  directory: string,
  { sizeBytes, mode, groupId, noExec = false }: MemoryMountOptions,
): Promise<void> {
  if (memoryMountsWithin(directory).includes(directory)) return;
  const options = [
    ...['nosuid', 'nodev', `mode=${mode.toString(8)}`],
    ...(noExec ? ['noexec'] : []),
    ...(sizeBytes === undefined ? [] : [`size=${sizeBytes}`]),
    ...(groupId === undefined ? [] : [`gid=${groupId}`]),
  ];
  try {
    await run('mount', ['-t', 'tmpfs', '-o', options.join(','), 'cloudless', directory]);
  } catch (reason) {
    const message = `${field}: files in memory cannot be mounted at ${directory}: ${errorMessageOf(reason)}`;
    throw new CloudlessError('precondition', message, { cause: reason });
  }
}

/** Takes away all files in memory that are mounted on a directory or below; what a container still has open goes with it. */
export async function unmountMemory(directory: string): Promise<void> {
  for (const place of [...memoryMountsWithin(directory)].reverse()) await run('umount', ['--lazy', place]);
}

/**
 * Sees to it that a container has the memory that was mounted for it: a runtime that does not share this agent's view of file
 * systems would have mounted the directory below, on disk and without a limit.
 * @param pid - Of the container's main process; one that has ended needs nothing.
 * @throws kind `precondition`, naming the place.
 */
export function checkMemoryMounts(pid: number, mounts: readonly PlannedMount[], proc = '/proc'): void {
  const wanted = mounts.filter(({ inMemory }) => inMemory === true);
  if (wanted.length === 0) return;
  const table = readTable(`${proc}/${pid}/mountinfo`);
  if (table === '') return;
  const found = memoryMountsWithin('/', table);
  const missing = wanted.find(({ containerPath }) => !found.includes(containerPath));
  if (missing === undefined) return;
  throw new CloudlessError(
    'precondition',
    `${missing.containerPath} is not in memory: the container runtime does not see what this agent mounts at ${missing.hostPath}; run both in one mount namespace`,
  );
}

function readTable(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return '';
  }
}
