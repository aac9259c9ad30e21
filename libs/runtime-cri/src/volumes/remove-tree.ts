import { execFile } from 'node:child_process';
import { lstat, rm } from 'node:fs/promises';
import { promisify } from 'node:util';
import { CloudlessError, errorMessageOf } from '@cloudless/base';
import { findMountsWithin } from './mount-table.js';

const run = promisify(execFile);

/**
 * Removes a directory with everything that a container left in it. Symbolic links are not followed,
 * and the content of mounts is not removed.
 * @throws kind `precondition` when something is mounted there, or the directory cannot be removed.
 */
export async function removeTree(directory: string): Promise<void> {
  const [mounted] = findMountsWithin(directory);
  if (mounted !== undefined)
    throw new CloudlessError(
      'precondition',
      `${directory} is not removed, because something is mounted at ${mounted}`,
    );
  let why: unknown;
  try {
    return await rm(directory, { recursive: true, force: true });
  } catch (reason) {
    why = reason;
  }
  // Immutable files, or paths that are too long for a system call: the standard tools handle both.
  await run('chattr', ['-R', '-f', '-i', '-a', directory]).catch(() => undefined);
  await run('rm', ['-rf', '--', directory]).catch((reason: unknown) => (why = reason));
  if (await exists(directory)) {
    throw new CloudlessError(
      'precondition',
      `${directory} cannot be removed: ${errorMessageOf(why)}`,
      { cause: why },
    );
  }
}

async function exists(path: string): Promise<boolean> {
  return lstat(path).then(
    () => true,
    () => false,
  );
}
