import { statSync } from 'node:fs';

/**
 * Which file a path leads to now.
 * @returns `device:inode`; undefined when there is none; `unknown` when the file system does not say, as on a disk that
 *   fails: the next write will tell what that means.
 */
export function identityOf(path: string): string | undefined {
  try {
    const found = statSync(path, { bigint: true, throwIfNoEntry: false });
    return found === undefined ? undefined : `${found.dev}:${found.ino}`;
  } catch {
    return 'unknown';
  }
}
