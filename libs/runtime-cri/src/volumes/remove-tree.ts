import { execFile } from 'node:child_process';
import { lstat, rm } from 'node:fs/promises';
import { promisify } from 'node:util';
import { CloudlessError, errorMessageOf } from '@cloudless/base';
import { findMountsWithin } from './mount-table.js';

const run = promisify(execFile);

/**
 * Removes a directory with all content, such as that of a container. Symbolic links are not
 * followed.
 * @throws kind `precondition` when a file system is mounted on or below the directory, or when the
 *   directory cannot be removed. A missing directory is not an error.
 */
export async function removeTree(directory: string): Promise<void> {
  const [mounted] = findMountsWithin(directory);
  if (mounted !== undefined)
    throw new CloudlessError(
      'precondition',
      `${directory} is not removed, because something is mounted at ${mounted}`,
    );
  let failure: unknown;
  try {
    return await rm(directory, { recursive: true, force: true });
  } catch (reason) {
    failure = reason;
  }
  // The tree contains immutable files, or paths that are too long for a system call. These programs
  // handle both.
  await run('chattr', ['-R', '-f', '-i', '-a', directory]).catch(() => undefined);
  await run('rm', ['-rf', '--', directory]).catch((reason: unknown) => (failure = reason));
  if (await exists(directory)) {
    throw new CloudlessError(
      'precondition',
      `${directory} cannot be removed: ${errorMessageOf(failure)}`,
      { cause: failure },
    );
  }
}

async function exists(path: string): Promise<boolean> {
  return lstat(path).then(
    () => true,
    () => false,
  );
}
