import { statSync } from 'node:fs';

/**
 * Returns the identity of the file at a path: `device:inode`; undefined when there is no file;
 * `unknown` when the file system reports an error, as on a failing disk. The next write then fails
 * if the disk does.
 */
export function getFileIdentity(path: string): string | undefined {
  try {
    const stats = statSync(path, { bigint: true, throwIfNoEntry: false });
    return stats === undefined ? undefined : `${stats.dev}:${stats.ino}`;
  } catch {
    return 'unknown';
  }
}
