import { constants } from 'node:fs';
import { mkdir, open, type FileHandle } from 'node:fs/promises';
import { errorCodeOf } from '@cloudless/base';

/** Opens only a directory, and fails for a symbolic link to a directory. */
const DIRECTORY = constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW;

/**
 * Creates nested directories as a mount point in a volume. The content of the volume is not
 * trusted, because containers write it: symbolic links are not followed. When a link or a file is
 * in the way, the directories below it are not created and no error is thrown. The runtime's mount
 * then fails.
 * @param directory - Absolute path of the volume.
 * @param names - Names of the directories, from the outermost to the innermost.
 */
export async function makeDirectoriesBelow(
  directory: string,
  names: readonly string[],
): Promise<void> {
  let current = await open(directory, DIRECTORY);
  try {
    for (const name of names) current = await enterDirectory(current, name);
  } catch (reason) {
    if (!['ELOOP', 'ENOTDIR'].includes(errorCodeOf(reason) ?? '')) throw reason;
  } finally {
    await current.close();
  }
}

/**
 * Creates and opens a directory, and closes its parent. Uses the descriptor of the parent instead
 * of its path, so that no process can replace the parent by a link meanwhile.
 */
async function enterDirectory(parent: FileHandle, name: string): Promise<FileHandle> {
  const place = `/proc/self/fd/${parent.fd}/${name}`;
  await mkdir(place, { mode: 0o755 }).catch((reason: unknown) => {
    if (errorCodeOf(reason) !== 'EEXIST') throw reason;
  });
  const child = await open(place, DIRECTORY);
  await parent.close();
  return child;
}
