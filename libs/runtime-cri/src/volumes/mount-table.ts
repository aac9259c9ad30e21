import { readFileSync, realpathSync } from 'node:fs';
import { isWithin } from './mount-paths.js';

/** One line of the mount table of a process. */
interface TableMount {
  readonly mountPoint: string;
  /** Major and minor number of the file system, which are the same in every mount namespace. */
  readonly device: string;
  /** Type of the file system. */
  readonly type: string;
}

/**
 * Lists the mount points below a directory of this machine, and the directory itself if it is one.
 * Symbolic links to the directory are resolved.
 */
export function findMountsWithin(directory: string, table = readOwnTable()): readonly string[] {
  return filterWithin(directory, readMounts(table));
}

/**
 * Lists the mount points of tmpfs below a directory, and the directory itself if it is one.
 * Symbolic links to the directory are resolved.
 */
export function findMemoryMountsWithin(
  directory: string,
  table = readOwnTable(),
): readonly string[] {
  return filterWithin(directory, parseMemoryMounts(table));
}

/**
 * Resolves the symbolic links of a path, as mount tables have it. Returns a path that does not
 * exist unchanged.
 */
export function resolvePath(directory: string): string {
  try {
    return realpathSync(directory);
  } catch {
    return directory;
  }
}

/** Parses the mounts of type tmpfs. */
export function parseMemoryMounts(table: string): readonly TableMount[] {
  return readMounts(table).filter(({ type }) => type === 'tmpfs');
}

function filterWithin(directory: string, mounts: readonly TableMount[]): readonly string[] {
  const real = resolvePath(directory);
  return mounts.map(({ mountPoint }) => mountPoint).filter((place) => isWithin(place, real));
}

/**
 * Parses a mount table.
 * @see proc_pid_mountinfo(5): field 3 is the device, field 5 the mount point, with blanks and the
 *   like as octal numbers; the type of the file system is the first field after the separator `-`
 */
function readMounts(table: string): readonly TableMount[] {
  return table.split('\n').flatMap((line) => {
    const [before = '', after = ''] = line.split(' - ');
    const [, , device = '', , place] = before.split(' ');
    const [type = ''] = after.split(' ');
    return place === undefined ? [] : [{ mountPoint: decodeOctal(place), device, type }];
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
