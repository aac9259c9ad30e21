import { readFileSync, realpathSync } from 'node:fs';
import { isPathWithin, parseMountLine, type MountLine } from '@cloudless/base';

/**
 * Lists the mount points below a directory of this machine, in the order of the mounts. Includes
 * the directory itself when it is a mount point. Symbolic links in `directory` are resolved.
 * @param table - Mount table to read. Default: the mount table of this process.
 */
export function findMountsWithin(directory: string, table = readOwnTable()): readonly string[] {
  return filterWithin(directory, readMounts(table));
}

/** Like {@link findMountsWithin}, but lists only mount points of type tmpfs. */
export function findMemoryMountsWithin(
  directory: string,
  table = readOwnTable(),
): readonly string[] {
  return filterWithin(directory, parseMemoryMounts(table));
}

/**
 * Resolves the symbolic links of a path, because mount tables contain only real paths.
 * @returns The path itself when it does not exist.
 */
export function resolvePath(directory: string): string {
  try {
    return realpathSync(directory);
  } catch {
    return directory;
  }
}

/** Parses a mount table and returns its mounts of type tmpfs. */
export function parseMemoryMounts(table: string): readonly MountLine[] {
  return readMounts(table).filter(({ type }) => type === 'tmpfs');
}

function filterWithin(directory: string, mounts: readonly MountLine[]): readonly string[] {
  const real = resolvePath(directory);
  return mounts.map(({ mountPoint }) => mountPoint).filter((path) => isPathWithin(path, real));
}

function readMounts(table: string): readonly MountLine[] {
  return table.split('\n').flatMap((line) => parseMountLine(line) ?? []);
}

function readOwnTable(): string {
  return readFileSync('/proc/self/mountinfo', 'utf8');
}
