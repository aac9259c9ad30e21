import { readdirSync } from 'node:fs';
import path from 'node:path';

/**
 * One file of a log. The name of a file is the sequence number of its first line, so the names sort
 * in the order of the lines.
 */
export interface LogFile {
  /** Path of the file. */
  readonly file: string;
  readonly firstSequence: bigint;
}

/** Digits of a file name: enough for every 64-bit number, so that names sort like numbers. */
const DIGITS = 20;

/** Returns the name of the file whose first line has this sequence number. */
export function formatLogFileName(firstSequence: bigint): string {
  return `${String(firstSequence).padStart(DIGITS, '0')}.log`;
}

/** Lists the log files of a directory, oldest first; empty when the directory does not exist. */
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
