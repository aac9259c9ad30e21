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

export interface LogReadOptions {
  readonly directory: string;
  readonly request: LogRequest;
  readonly signal: StopSignal;
  /** Whether the container had ended and its log was complete when the read began. */
  readonly isComplete: boolean;
  /** Resolves when the log is complete. Called only for requests that follow. */
  readonly waitUntilComplete: () => Promise<void>;
}

/**
 * Reads a log while the container runtime may append to it and this runtime may rotate it. Yields
 * each kept line once, in order, in batches of whatever is available.
 * @throws what `waitUntilComplete` rejects with.
 */
export async function* readLog(options: LogReadOptions): AsyncGenerator<LogBatch> {
  const { directory, request, signal, isComplete } = options;
  if (signal.aborted) return;
  const changes =
    request.follow && !isComplete ? new DirectoryChanges(directory, signal) : undefined;
  const cursor = new LogCursor(directory);
  try {
    if (changes !== undefined) changes.finishAfter(options.waitUntilComplete());
    const { from, toSkip } = await seek(cursor, directory, request, isComplete);
    const selection = new LineSelection(request, from, toSkip);
    const ends = new PartialLineResolver();
    /** Sequence number of the last line that was read. */
    let last: bigint | undefined;
    const createBatches = function* (
      lines: readonly LogLine[],
      skippedBytes?: number,
    ): Generator<LogBatch> {
      // A line that waits for the next line of its stream must not hide missing lines in between.
      const isGap = last !== undefined && lines[0] !== undefined && lines[0].sequence !== last + 1n;
      const before = isGap ? selection.select(ends.finish(false)) : undefined;
      if (before !== undefined) yield before;
      last = lines.at(-1)?.sequence ?? last;
      const batch = selection.select(ends.pushAll(lines), skippedBytes);
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
        const batch = selection.select(ends.finish(isComplete || changes !== undefined));
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
  /** Sequence number of the first line that is requested or counted. */
  readonly from: bigint;
  /** Number of selected lines from there that precede the requested tail. */
  readonly toSkip: number;
}

/** Moves the cursor to the beginning of the request. */
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
    return { from: afterSequence + 1n, toSkip: 0 };
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
  return { from, toSkip: Math.max(0, count - tailLines) };
}

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
