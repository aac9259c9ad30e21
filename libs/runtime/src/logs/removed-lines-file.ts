import { readFileSync, renameSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import {
  REMOVED_LINES_FILE,
  addRemovedFiles,
  encodeRemovedLines,
  parseRemovedLines,
  type RemovedLines,
} from './removed-lines.js';

/** A log file that rotation removes. */
export interface SurplusFile {
  /** Path of the file. */
  readonly file: string;
  /** Sequence number of the first line of the file; undefined for a file without a number. */
  readonly firstSequence?: bigint | undefined;
}

/** Reads the record of removed lines of the log in a directory; undefined without a record. */
export function readRemovedLines(directory: string): RemovedLines | undefined {
  try {
    return parseRemovedLines(readFileSync(path.join(directory, REMOVED_LINES_FILE), 'utf8'));
  } catch {
    return undefined; // no file was removed yet
  }
}

/**
 * Adds files to the record of removed lines. Call it before the files are removed, so that a reader
 * that misses the files can report their size. Errors of the disk are ignored: on a full disk it is
 * more important that the files are removed.
 * @param surplus - Files to remove, oldest first.
 * @param keptFrom - Sequence number of the first line that stays.
 */
export function recordRemovedFiles(
  directory: string,
  surplus: readonly SurplusFile[],
  keptFrom: bigint,
): void {
  const target = path.join(directory, REMOVED_LINES_FILE);
  try {
    const measure = ({ file }: SurplusFile): number => statSync(file).size;
    const removed = addRemovedFiles(readRemovedLines(directory), surplus, keptFrom, measure);
    if (removed === undefined) return;
    writeFileSync(`${target}.new`, encodeRemovedLines(removed), { mode: 0o600 });
    renameSync(`${target}.new`, target);
  } catch {
    // The disk is full.
  }
}
