import { createReadStream, readdirSync, statSync } from 'node:fs';
import path from 'node:path';
import { countBytesBefore, readRemovedLines } from '@cloudless/runtime';
import { LOG_FILE } from '../containers/request-config.js';
import { CriLogParser } from './cri-log-parser.js';

/**
 * One file of a log. The name of a rotated file is the sequence number of its first line, so that a
 * number means the same line for every reader, even after old files were removed.
 */
export interface LogFile {
  /** Absolute path. */
  readonly file: string;
  /**
   * - `current`: the runtime writes new lines to the file.
   * - `closing`: the file was rotated, and the runtime may still write its last lines.
   * - `closed`: the file does not change any more.
   */
  readonly state: 'current' | 'closing' | 'closed';
  /**
   * Sequence number of the first line; undefined for the current file, whose number follows from
   * the lines of the previous file.
   */
  readonly firstSequence: bigint | undefined;
}

/**
 * Digits of the sequence number in a file name: enough for 64 bits, so that names sort in order.
 */
const DIGITS = 20;
const CLOSED = /^(\d{20})\.log$/;
const CLOSING = /^(\d{20})\.closing$/;

/** Returns the path of the rotated file whose first line has this sequence number. */
export function toRotatedPath(
  directory: string,
  firstSequence: bigint,
  state: 'closing' | 'closed',
): string {
  return path.join(
    directory,
    `${String(firstSequence).padStart(DIGITS, '0')}.${state === 'closed' ? 'log' : 'closing'}`,
  );
}

/** Lists the files of a log, oldest first; empty when the directory does not exist. */
export function listLogFiles(directory: string): readonly LogFile[] {
  let names: string[];
  try {
    names = readdirSync(directory).sort();
  } catch {
    return [];
  }
  const rotated = names.flatMap((name): LogFile[] => {
    const closed = CLOSED.exec(name)?.[1];
    const first = closed ?? CLOSING.exec(name)?.[1];
    if (first === undefined) return [];
    const state = closed === undefined ? 'closing' : 'closed';
    return [{ file: path.join(directory, name), state, firstSequence: BigInt(first) }];
  });
  if (!names.includes(LOG_FILE)) return rotated;
  return [
    ...rotated,
    { file: path.join(directory, LOG_FILE), state: 'current', firstSequence: undefined },
  ];
}

/**
 * Returns the bytes of the log before the file with this first line, removed files included;
 * undefined when unknown.
 */
export function measureSizeBefore(directory: string, firstSequence: bigint): number | undefined {
  const measured = listLogFiles(directory).flatMap((file) => {
    const found =
      file.firstSequence === undefined ? undefined : statSync(file.file, { throwIfNoEntry: false });
    return file.firstSequence === undefined || found === undefined
      ? []
      : [{ firstSequence: file.firstSequence, bytes: found.size }];
  });
  return countBytesBefore(firstSequence, measured, readRemovedLines(directory));
}

/** Line counts of closed files, by path. A closed file never changes. */
const counts = new Map<string, bigint>();
/** Number of counts above which all are forgotten: there are only a few files per container. */
const MAX_COUNTS = 4_096;

/** Counts the lines of a closed file and returns the sequence number of the line after it. */
export async function findNextSequence({ file, firstSequence = 1n }: LogFile): Promise<bigint> {
  const known = counts.get(file);
  if (known !== undefined) return firstSequence + known;
  const parser = new CriLogParser(firstSequence);
  for await (const chunk of createReadStream(file)) parser.feed(chunk as Buffer);
  if (counts.size >= MAX_COUNTS) counts.clear();
  counts.set(file, parser.sequence - firstSequence);
  return parser.sequence;
}
