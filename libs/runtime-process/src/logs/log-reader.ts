import { watch, type FSWatcher } from 'node:fs';
import { readFile } from 'node:fs/promises';
import type { StopSignal } from '@cloudless/base';
import { LineSelection, isLineSelected, type LogBatch, type LogRequest } from '@cloudless/runtime';
import { LogCursor } from './log-cursor.js';
import { listLogFiles } from './log-files.js';
import { parseLogRecords } from './log-record.js';

export interface LogReadOptions {
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
 * Reads a log while a writer may append to it and rotate it. Yields each kept line once, in order,
 * in batches of whatever is available.
 * @throws what `waitUntilDrained` rejects with.
 */
export async function* readLog(options: LogReadOptions): AsyncGenerator<LogBatch> {
  const { directory, request, signal } = options;
  if (signal.aborted) return;
  const changes = request.follow ? new LogChanges(directory, signal) : undefined;
  try {
    if (changes !== undefined)
      void options.waitUntilDrained().then(
        () => changes.finish(),
        (reason: unknown) => changes.fail(reason),
      );
    const { from, skipped } = await findStart(directory, request);
    const selection = new LineSelection(request, from, skipped);
    const cursor = new LogCursor(directory, from);
    try {
      for (;;) {
        // Reset before the read: a change during the read wakes the reader again.
        const { mayHaveMore, mayHaveNewFiles } = changes?.beginRead() ?? {
          mayHaveMore: false,
          mayHaveNewFiles: true,
        };
        for await (const { lines, skippedBytes } of cursor.readAvailable(mayHaveNewFiles)) {
          if (signal.aborted) return;
          const batch = selection.select(lines, skippedBytes);
          if (batch !== undefined) yield batch;
        }
        if (changes === undefined || !mayHaveMore || !(await changes.waitForMore())) return;
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
    // removed by rotation meanwhile: no lines
    const bytes = await readFile(file).catch(() => Buffer.alloc(0));
    count += parseLogRecords(bytes).lines.filter((line) => isLineSelected(request, line)).length;
    if (count >= tailLines || firstSequence <= afterSequence)
      return { from: firstSequence, skipped: Math.max(0, count - tailLines) };
  }
  return { from: 1n, skipped: Math.max(0, count - tailLines) };
}

/**
 * Wakes a follower when log files have changed, when the log is complete, or when the follower is
 * cancelled.
 */
class LogChanges {
  private readonly watcher: FSWatcher;
  private changed = true;
  /** Files may have been created or removed. */
  private filesChanged = true;
  private finished = false;
  private aborted = false;
  private failure: { readonly reason: unknown } | undefined;
  private wake: (() => void) | undefined;
  private readonly onAbort = (): void => this.update(() => (this.aborted = true));

  constructor(
    directory: string,
    private readonly signal: StopSignal,
  ) {
    this.watcher = watch(directory, { persistent: false }, (kind) =>
      this.onChange(kind !== 'change'),
    );
    this.watcher.on('error', () => this.onChange(true));
    signal.addEventListener('abort', this.onAbort, { once: true });
  }

  /** Marks the log as complete. */
  finish(): void {
    this.update(() => (this.finished = true));
  }

  fail(reason: unknown): void {
    this.update(() => (this.failure = { reason }));
  }

  /**
   * Call before a read. Returns whether another read may find more lines, and whether files may
   * have been created or removed since the last read.
   */
  beginRead(): { readonly mayHaveMore: boolean; readonly mayHaveNewFiles: boolean } {
    const mayHaveNewFiles = this.filesChanged || this.finished;
    this.changed = false;
    this.filesChanged = false;
    return { mayHaveMore: !this.finished, mayHaveNewFiles };
  }

  /**
   * Call after a read. Waits for the next change; false when the follower was cancelled.
   * @throws the reason given to `fail`.
   */
  async waitForMore(): Promise<boolean> {
    while (!this.changed && !this.finished && !this.aborted && this.failure === undefined) {
      await new Promise<void>((resolve) => (this.wake = resolve));
    }
    if (this.aborted) return false;
    if (this.failure !== undefined) throw this.failure.reason;
    return true;
  }

  close(): void {
    this.watcher.close();
    this.signal.removeEventListener('abort', this.onAbort);
  }

  private onChange(moved: boolean): void {
    this.update(() => {
      this.changed = true;
      this.filesChanged ||= moved;
    });
  }

  private update(change: () => void): void {
    change();
    this.wake?.();
    this.wake = undefined;
  }
}
