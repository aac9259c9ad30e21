import { constants } from 'node:fs';
import { mkdir, open, type FileHandle } from 'node:fs/promises';

const DIRECTORY = constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW;

/**
 * Creates nested directories as a mount point. The content that a container left in the directory
 * is not trusted: symbolic links are not followed. When a link is in the way, nothing is created,
 * and the mount fails by itself.
 */
export async function makeDirectoriesBelow(
  directory: string,
  names: readonly string[],
): Promise<void> {
  let at = await open(directory, DIRECTORY);
  try {
    for (const name of names) at = await enterDirectory(at, name);
  } catch (reason) {
    if (!['ELOOP', 'ENOTDIR'].includes((reason as NodeJS.ErrnoException).code ?? '')) throw reason;
  } finally {
    await at.close();
  }
}

/**
 * Creates and opens a child through the descriptor of its parent, not through its path: no process
 * can replace the parent meanwhile.
 */
async function enterDirectory(parent: FileHandle, name: string): Promise<FileHandle> {
  const place = `/proc/self/fd/${parent.fd}/${name}`;
  await mkdir(place, { mode: 0o755 }).catch((reason: unknown) => {
    if ((reason as NodeJS.ErrnoException).code !== 'EEXIST') throw reason;
  });
  const child = await open(place, DIRECTORY);
  await parent.close();
  return child;
}
