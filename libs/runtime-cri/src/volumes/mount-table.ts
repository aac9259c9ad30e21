import { readFileSync, realpathSync } from 'node:fs';
import { isPathWithin } from '@cloudless/base';

/** One line of the mount table of a process. */
interface TableMount {
  readonly mountPoint: string;
  /** Major and minor number of the file system, which are the same in every mount namespace. */
  readonly device: string;
  /** Type of the file system. */
  readonly type: string;
}

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
export function parseMemoryMounts(table: string): readonly TableMount[] {
  return readMounts(table).filter(({ type }) => type === 'tmpfs');
}

function filterWithin(directory: string, mounts: readonly TableMount[]): readonly string[] {
  const real = resolvePath(directory);
  return mounts.map(({ mountPoint }) => mountPoint).filter((path) => isPathWithin(path, real));
}

/**
 * Parses a mount table.
 * @see proc_pid_mountinfo(5): field 3 is the device, field 5 the mount point, in which spaces, tabs
 *   and backslashes are octal numbers; the first field after the separator `-` is the type of the
 *   file system
 */
function readMounts(table: string): readonly TableMount[] {
  return table.split('\n').flatMap((line) => {
    const [before = '', after = ''] = line.split(' - ');
    const [, , device = '', , mountPoint] = before.split(' ');
    const [type = ''] = after.split(' ');
    return mountPoint === undefined ? [] : [{ mountPoint: decodeOctal(mountPoint), device, type }];
  });
}

function decodeOctal(field: string): string {
  return field.replace(/\\([0-7]{3})/g, (_, digits: string) =>
    String.fromCharCode(Number.parseInt(digits, 8)),
  );
}

function readOwnTable(): string {
  return readFileSync('/proc/self/mountinfo', 'utf8');
}
