import { readdirSync } from 'node:fs';
import path from 'node:path';

/**
 * A log file; its name is the sequence number of its first line, so a log is the files in order of
 * their names.
 */
export interface LogFile {
  readonly file: string;
  readonly firstSequence: bigint;
}

/** Digits of a name: room for every 64-bit number, so that names sort as numbers do. */
const DIGITS = 20;

export function logFileName(firstSequence: bigint): string {
  return `${String(firstSequence).padStart(DIGITS, '0')}.log`;
}

/** The log files of a directory, oldest first; none when there is no such directory. */
export function listLogFiles(directory: string): readonly LogFile[] {
  let names: readonly string[];
  try {
    names = readdirSync(directory);
  } catch {
    return [];
  }
  return names
    .filter((name) => /^\d{20}\.log$/.test(name))
    .sort()
    .map((name) => ({
      file: path.join(directory, name),
      firstSequence: BigInt(name.slice(0, DIGITS)),
    }));
}
