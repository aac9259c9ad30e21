import { readFileSync } from 'node:fs';
import { isWithin } from './mount-paths.js';

/**
 * Where something is mounted below a directory of this machine, or on it.
 * @see proc_pid_mountinfo(5): field 5 is the mount point, with blanks and the like as octal numbers
 */
export function mountsWithin(directory: string, table = ownTable()): readonly string[] {
  return table
    .split('\n')
    .map((line) => line.split(' ')[4])
    .filter((field) => field !== undefined)
    .map((field) => field.replace(/\\([0-7]{3})/g, (_, digits: string) => String.fromCharCode(Number.parseInt(digits, 8))))
    .filter((place) => isWithin(place, directory));
}

/**
 * Where files in memory are mounted below a directory, or on it.
 * @see proc_pid_mountinfo(5): the file system's type is the first field after the separator `-`
 */
export function memoryMountsWithin(directory: string, table = ownTable()): readonly string[] {
  return mountsWithin(
    directory,
    table
      .split('\n')
      .filter((line) => line.split(' - ')[1]?.startsWith('tmpfs ') === true)
      .join('\n'),
  );
}

function ownTable(): string {
  return readFileSync('/proc/self/mountinfo', 'utf8');
}
