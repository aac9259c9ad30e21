import { readFile } from 'node:fs/promises';
import type { StopSignal } from '@cloudless/base';
import {
  DirectoryChanges,
  LineSelection,
  isLineSelected,
  type LogBatch,
  type LogRequest,
} from '@cloudless/runtime';
import { LogCursor } from './log-cursor.js';
import { listLogFiles } from './log-files.js';
import { parseLogRecords } from './log-record.js';

/** Arguments of {@link readLog}. */
export interface LogReadOptions {
  /** Directory of the log files. */
  readonly directory: string;
  readonly request: LogRequest;
  readonly signal: StopSignal;
  /**
   * Resolves when all output of the container is in the files. Called only for requests that
   * follow.
   */
  readonly waitUntilDrained: () => Promise<void>;
}

/**
 * Reads a log while a writer may append to and rotate the log. Yields each kept line once, in
 * order, in batches of the lines that are available. Ends when all requested lines were yielded or
 * `signal` is aborted.
 * @throws The error of `waitUntilDrained`.
 */
export async function* readLog(options: LogReadOptions): AsyncGenerator<LogBatch> {
  const { directory, request, signal } = options;
  if (signal.aborted) return;
  const changes = request.follow ? new DirectoryChanges(directory, signal) : undefined;
  try {
    changes?.finishAfter(options.waitUntilDrained());
    const { from, skipped } = await findStart(directory, request);
    const selection = new LineSelection(request, from, skipped);
    const cursor = new LogCursor(directory, from);
    try {
      for (;;) {
        // Called before the read, so that a change during the read wakes the reader again.
        const { mayHaveMore, mayHaveNewFiles } = changes?.beginRead() ?? {
          mayHaveMore: false,
          mayHaveNewFiles: true,
        };
        for await (const { lines, skippedBytes } of cursor.readAvailable(mayHaveNewFiles)) {
          if (signal.aborted) return;
          const batch = selection.select(lines, skippedBytes);
          if (batch !== undefined) yield batch;
        }
        if (changes === undefined || !mayHaveMore || !(await changes.waitForChange())) return;
      }
    } finally {
      await cursor.close();
    }
  } finally {
    changes?.close();
  }
}

/**
 * Finds the first sequence number to read, and how many selected lines from there precede the
 * requested tail.
 */
async function findStart(
  directory: string,
  request: LogRequest,
): Promise<{ readonly from: bigint; readonly skipped: number }> {
  const { afterSequence = 0n, tailLines } = request;
  if (tailLines === undefined) return { from: afterSequence + 1n, skipped: 0 };
  let count = 0;
  for (const { file, firstSequence } of [...listLogFiles(directory)].reverse()) {
    // A file that rotation has removed meanwhile has no lines.
    const bytes = await readFile(file).catch(() => Buffer.alloc(0));
    count += parseLogRecords(bytes).lines.filter((line) => isLineSelected(request, line)).length;
    if (count >= tailLines || firstSequence <= afterSequence)
      return { from: firstSequence, skipped: Math.max(0, count - tailLines) };
  }
  return { from: 1n, skipped: Math.max(0, count - tailLines) };
}
