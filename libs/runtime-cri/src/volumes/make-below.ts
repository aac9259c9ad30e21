import { constants } from 'node:fs';
import { mkdir, open, type FileHandle } from 'node:fs/promises';

const DIRECTORY = constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW;

/**
 * Makes directories one below the other, for a mount to stand there. What a container left in the
 * directory is not trusted: no symbolic link is followed; where one is in the way, nothing is made
 * and the mount fails by itself.
 */
export async function makeBelow(directory: string, names: readonly string[]): Promise<void> {
  let at = await open(directory, DIRECTORY);
  try {
    for (const name of names) at = await enter(at, name);
  } catch (reason) {
    if (!['ELOOP', 'ENOTDIR'].includes((reason as NodeJS.ErrnoException).code ?? '')) throw reason;
  } finally {
    await at.close();
  }
}

/** By the open directory, not by its path: nobody can put another one in its place. */
async function enter(parent: FileHandle, name: string): Promise<FileHandle> {
  const place = `/proc/self/fd/${parent.fd}/${name}`;
  await mkdir(place, { mode: 0o755 }).catch((reason: unknown) => {
    if ((reason as NodeJS.ErrnoException).code !== 'EEXIST') throw reason;
  });
  const child = await open(place, DIRECTORY);
  await parent.close();
  return child;
}
