import { statSync } from 'node:fs';

/**
 * Identifies the file at a path.
 * @returns `device:inode`; undefined when there is no file; `unknown` when the file system does not
 *   answer, as on a disk that fails: the next write shows what that means.
 */
export function identityOf(path: string): string | undefined {
  try {
    const found = statSync(path, { bigint: true, throwIfNoEntry: false });
    return found === undefined ? undefined : `${found.dev}:${found.ino}`;
  } catch {
    return 'unknown';
  }
}
