import { statSync } from 'node:fs';
import { rename, rm, stat } from 'node:fs/promises';
import path from 'node:path';
import { errorKindOf, sleep, type Clock } from '@cloudless/base';
import { recordRemovedFiles } from '@cloudless/runtime';
import { LOG_FILE } from '../containers/request-config.js';
import { listLogFiles, toRotatedPath, findNextSequence, type LogFile } from './log-files.js';

/**
 * Delay after which a rotated file counts as closed. Runtimes write the last lines to the old file
 * within this time after they have reopened the log.
 */
const LAST_WRITE_DELAY_MS = 250;

/** Arguments of {@link rotateLog}. */
export interface RotationOptions {
  /** Absolute path of the log directory of the container. */
  readonly directory: string;
  /** Size in bytes above which a file is rotated. */
  readonly fileBytes: number;
  /** Number of files that are kept, including the current file, at least 2. */
  readonly files: number;
  readonly clock: Clock;
  /**
   * Makes the container runtime reopen the log, which creates a new current file. Fails with kind
   * `unavailable` when the runtime does not answer; every other failure means that the container
   * has ended.
   */
  readonly reopen: () => Promise<void>;
}

/**
 * Returns true when the current file exists and has at most `fileBytes`. Costs one system call,
 * because every log is checked often.
 */
export function isSmall(directory: string, fileBytes: number): boolean {
  const found = statSync(path.join(directory, LOG_FILE), { throwIfNoEntry: false });
  return found !== undefined && found.size <= fileBytes;
}

/**
 * Rotates the log of a running container when its current file is larger than `fileBytes`. After a
 * crash at any point, the next call finishes the unfinished rotation instead. Do not run it twice
 * at the same time for one log.
 * @throws kind `unavailable` when the runtime does not answer; the next call continues. Any error of
 *   `reopen` when only the current file is missing.
 */
export async function rotateLog(options: RotationOptions): Promise<void> {
  const { directory, fileBytes } = options;
  const files = listLogFiles(directory);
  const unfinished = files.filter(({ state }) => state === 'closing');
  if (unfinished.length > 0) return finishRotation(options, unfinished);
  const current = files.find(({ state }) => state === 'current');
  // Without any file, the runtime has not created the log yet. With rotated files only, the current
  // file was lost, and the runtime creates it again.
  if (current === undefined) return files.length === 0 ? undefined : options.reopen();
  const found = await stat(current.file).catch(() => undefined);
  if (found === undefined || found.size <= fileBytes) return;
  const previous = files.findLast(({ state }) => state === 'closed');
  const firstSequence = previous === undefined ? 1n : await findNextSequence(previous);
  const closing: LogFile = {
    file: toRotatedPath(directory, firstSequence, 'closing'),
    state: 'closing',
    firstSequence,
  };
  await rename(current.file, closing.file);
  await finishRotation(options, [closing]);
}

/**
 * Makes the runtime reopen the log, gives the rotated files their final names, removes old files.
 */
async function finishRotation(
  { directory, files, clock, reopen }: RotationOptions,
  unfinished: readonly LogFile[],
): Promise<void> {
  try {
    await reopen();
  } catch (reason) {
    // The runtime still writes to the old file. The next call tries again.
    if (errorKindOf(reason) === 'unavailable') throw reason;
    // Otherwise the container has ended, and the file gets no more lines.
  }
  await sleep(clock, LAST_WRITE_DELAY_MS);
  for (const { file, firstSequence = 1n } of unfinished)
    await rename(file, toRotatedPath(directory, firstSequence, 'closed'));
  const closed = listLogFiles(directory).filter(({ state }) => state === 'closed');
  const surplus = closed.slice(0, Math.max(0, closed.length - (files - 1)));
  const keptFrom = closed[surplus.length]?.firstSequence;
  // Readers then know how many lines and bytes came before the oldest file that is kept.
  if (surplus.length > 0 && keptFrom !== undefined)
    recordRemovedFiles(directory, surplus, keptFrom);
  for (const { file } of surplus) await rm(file, { force: true });
}
