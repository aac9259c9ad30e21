import { statSync } from 'node:fs';

/**
 * Returns the identity of the file at a path: `device:inode`; undefined when there is no file;
 * `unknown` when the file system does not answer, as on a failing disk. The next write then shows
 * the state of the disk.
 */
export function getFileIdentity(path: string): string | undefined {
  try {
    const found = statSync(path, { bigint: true, throwIfNoEntry: false });
    return found === undefined ? undefined : `${found.dev}:${found.ino}`;
  } catch {
    return 'unknown';
  }
}
