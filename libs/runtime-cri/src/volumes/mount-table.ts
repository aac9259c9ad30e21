import { readFileSync, realpathSync } from 'node:fs';
import { isWithin } from './mount-paths.js';

/** A mount as the table of a process shows it. */
interface TableMount {
  readonly place: string;
  /** Major and minor number of the file system: the same in every mount namespace. */
  readonly device: string;
  /** Type of the file system. */
  readonly type: string;
}

/**
 * Where something is mounted below a directory of this machine, or on it; symbolic links to the
 * directory are followed.
 */
export function mountsWithin(directory: string, table = ownTable()): readonly string[] {
  return placesWithin(directory, readMounts(table));
}

/**
 * Where files in memory are mounted below a directory, or on it; symbolic links to the directory
 * are followed.
 */
export function memoryMountsWithin(directory: string, table = ownTable()): readonly string[] {
  return placesWithin(directory, memoryMounts(table));
}

/** A path as tables of mounts have it: without symbolic links. As it is when nothing is there. */
export function realPath(directory: string): string {
  try {
    return realpathSync(directory);
  } catch {
    return directory;
  }
}

/** Mounts of files in memory. */
export function memoryMounts(table: string): readonly TableMount[] {
  return readMounts(table).filter(({ type }) => type === 'tmpfs');
}

function placesWithin(directory: string, mounts: readonly TableMount[]): readonly string[] {
  const real = realPath(directory);
  return mounts.map(({ place }) => place).filter((place) => isWithin(place, real));
}

/**
 * @see proc_pid_mountinfo(5): field 3 is the device, field 5 the mount point, with blanks and the
 *   like as octal numbers; the type of the file system is the first field after the separator `-`
 */
function readMounts(table: string): readonly TableMount[] {
  return table.split('\n').flatMap((line) => {
    const [before = '', after = ''] = line.split(' - ');
    const [, , device = '', , place] = before.split(' ');
    const [type = ''] = after.split(' ');
    return place === undefined ? [] : [{ place: unescaped(place), device, type }];
  });
}

function unescaped(field: string): string {
  return field.replace(/\\([0-7]{3})/g, (_, digits: string) =>
    String.fromCharCode(Number.parseInt(digits, 8)),
  );
}

function ownTable(): string {
  return readFileSync('/proc/self/mountinfo', 'utf8');
}
