import type { StopSignal } from '@cloudless/base';
import {
  DirectoryChanges,
  LineSelection,
  isLineSelected,
  type LogBatch,
  type LogLine,
  type LogRequest,
} from '@cloudless/runtime';
import { findFirstSequence, LogCursor, listNumberedFiles } from './log-cursor.js';
import type { LogFile } from './log-files.js';
import { PartialLineResolver } from './partial-line-resolver.js';

/** Arguments of {@link readLog}. */
export interface LogReadOptions {
  /** Absolute path of the log directory of the container. */
  readonly directory: string;
  readonly request: LogRequest;
  /** Ends the iteration without an error when aborted. */
  readonly signal: StopSignal;
  /** True when the container had ended and its log was complete before the read began. */
  readonly isComplete: boolean;
  /**
   * Resolves when the log is complete. Called only for a request that follows a running container.
   */
  readonly waitUntilComplete: () => Promise<void>;
}

/**
 * Reads a log, also while the container runtime appends lines and this agent rotates the files.
 * Yields each line that rotation has kept once, in order, in batches of the lines that are
 * available.
 * @throws The error with which `waitUntilComplete` rejects.
 */
export async function* readLog(options: LogReadOptions): AsyncGenerator<LogBatch> {
  const { directory, request, signal, isComplete } = options;
  if (signal.aborted) return;
  const changes =
    request.follow && !isComplete ? new DirectoryChanges(directory, signal) : undefined;
  const cursor = new LogCursor(directory);
  try {
    if (changes !== undefined) changes.finishAfter(options.waitUntilComplete());
    const { from, skipCount } = await seek(cursor, directory, request, isComplete);
    const selection = new LineSelection(request, from, skipCount);
    const resolver = new PartialLineResolver();
    /** Sequence number of the last line that was read. */
    let lastSequence: bigint | undefined;
    const createBatches = function* (
      lines: readonly LogLine[],
      skippedBytes?: number,
    ): Generator<LogBatch> {
      // Before a gap, yield the lines that wait for the next line of their stream: that line is
      // missing, and the gap must be reported between the two.
      const isAfterGap =
        lastSequence !== undefined &&
        lines[0] !== undefined &&
        lines[0].sequence !== lastSequence + 1n;
      const waiting = isAfterGap ? selection.select(resolver.finish(false)) : undefined;
      if (waiting !== undefined) yield waiting;
      lastSequence = lines.at(-1)?.sequence ?? lastSequence;
      const batch = selection.select(resolver.pushAll(lines), skippedBytes);
      if (batch !== undefined) yield batch;
    };
    for (;;) {
      // Reset before the read: a change during the read wakes the reader again.
      const mayHaveMore = changes?.beginRead().mayHaveMore ?? false;
      const isLast = isComplete || (changes !== undefined && !mayHaveMore);
      for await (const { lines, skippedBytes } of cursor.readAvailable(isLast)) {
        if (signal.aborted) return;
        yield* createBatches(lines, skippedBytes);
      }
      if (changes === undefined || !mayHaveMore) {
        const batch = selection.select(resolver.finish(isComplete || changes !== undefined));
        if (batch !== undefined) yield batch;
        return;
      }
      if (!(await changes.waitForChange())) return;
    }
  } finally {
    changes?.close();
    await cursor.close();
  }
}

/** Position at which a read begins. */
interface ReadStart {
  /** Sequence number of the first line that is read. */
  readonly from: bigint;
  /** Number of selected lines to skip from there, because they precede the requested tail. */
  readonly skipCount: number;
}

/** Moves the cursor to the first file of the requested lines. For a tail, counts the lines. */
async function seek(
  cursor: LogCursor,
  directory: string,
  request: LogRequest,
  isComplete: boolean,
): Promise<ReadStart> {
  const { afterSequence = 0n, tailLines } = request;
  const files = listNumberedFiles(directory, isComplete);
  if (tailLines === undefined) {
    cursor.startAt(
      files.findLast(
        ({ firstSequence }) => firstSequence !== undefined && firstSequence <= afterSequence + 1n,
      ),
    );
    return { from: afterSequence + 1n, skipCount: 0 };
  }
  let count = 0;
  let from = 1n;
  for (const file of [...files].reverse()) {
    const { selected, firstSequence } = await countSelected(file, files, request);
    count += selected;
    cursor.startAt(file);
    from = firstSequence;
    if (count >= tailLines || firstSequence <= afterSequence) break;
  }
  return { from, skipCount: Math.max(0, count - tailLines) };
}

/** Counts the lines of a file that the request selects, and finds the number of its first line. */
async function countSelected(
  file: LogFile,
  files: readonly LogFile[],
  request: LogRequest,
): Promise<{ readonly selected: number; readonly firstSequence: bigint }> {
  const firstSequence = await findFirstSequence(file, files);
  const cursor = new LogCursor('');
  let selected = 0;
  try {
    await cursor.openFile(file, firstSequence);
    for await (const { lines } of cursor.readOpenFile())
      selected += lines.filter((line) => isLineSelected(request, line)).length;
  } finally {
    await cursor.close();
  }
  return { selected, firstSequence };
}
