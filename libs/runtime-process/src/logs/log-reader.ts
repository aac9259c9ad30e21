import { watch, type FSWatcher } from 'node:fs';
import { open, readFile, type FileHandle } from 'node:fs/promises';
import type { StopSignal } from '@cloudless/base';
import { selectsLine, type LogLine, type LogRequest } from '@cloudless/runtime';
import { listLogFiles, type LogFile } from './log-files.js';
import { parseLogRecords } from './log-record.js';

const CHUNK_BYTES = 64 * 1024;

/** What a reader needs to know of the container. */
export interface LogReadOptions {
  readonly directory: string;
  readonly request: LogRequest;
  readonly signal: StopSignal;
  /** Resolves when all output is in the files; only asked when following. */
  readonly drained: () => Promise<void>;
}

/** Reads log files that a writer may be writing and rotating, each line once, in order. */
export async function* readLog(options: LogReadOptions): AsyncGenerator<LogLine> {
  const { directory, request, signal } = options;
  if (signal.aborted) return;
  const changes = request.follow ? new Changes(directory, signal) : undefined;
  try {
    if (changes !== undefined)
      void options.drained().then(
        () => changes.finish(),
        (reason: unknown) => changes.fail(reason),
      );
    const { from, skipped } = await startOf(directory, request);
    const cursor = new Cursor(directory, from);
    try {
      let skip = skipped;
      for (;;) {
        const mayHaveMore = changes?.take() ?? false; // asked before the read: what comes later wakes us again
        for await (const line of cursor.linesUpToNow()) {
          if (signal.aborted) return;
          if (!selectsLine(request, line)) continue;
          if (skip > 0) skip -= 1;
          else yield line;
        }
        if (changes === undefined || !mayHaveMore || !(await changes.next())) return;
      }
    } finally {
      await cursor.close();
    }
  } finally {
    changes?.close();
  }
}

/** Where to begin, and how many selected lines from there are before the tail. */
async function startOf(directory: string, request: LogRequest): Promise<{ readonly from: bigint; readonly skipped: number }> {
  const { afterSequence = 0n, tailLines } = request;
  if (tailLines === undefined) return { from: afterSequence + 1n, skipped: 0 };
  let count = 0;
  for (const { file, firstSequence } of [...listLogFiles(directory)].reverse()) {
    const bytes = await readFile(file).catch(() => Buffer.alloc(0)); // rotated away: as good as empty
    count += parseLogRecords(bytes).lines.filter((line) => selectsLine(request, line)).length;
    if (count >= tailLines || firstSequence <= afterSequence)
      return { from: firstSequence, skipped: Math.max(0, count - tailLines) };
  }
  return { from: 1n, skipped: Math.max(0, count - tailLines) };
}

/** A position in the files of a log. */
class Cursor {
  private handle: FileHandle | undefined;
  private current: LogFile | undefined;
  private rest: Buffer = Buffer.alloc(0);
  private position = 0;
  private readonly chunk = Buffer.allocUnsafe(CHUNK_BYTES);

  constructor(
    private readonly directory: string,
    private readonly from: bigint,
  ) {}

  /** Everything from the position to the end of the newest file. */
  async *linesUpToNow(): AsyncGenerator<LogLine> {
    for (;;) {
      const next = this.following(); // before the last read: a file that has a successor gets no more lines
      if (this.handle !== undefined) yield* this.linesOfFile(this.handle);
      if (next === undefined) return;
      await this.moveTo(next);
    }
  }

  async close(): Promise<void> {
    await this.handle?.close();
    this.handle = undefined;
  }

  private following(): LogFile | undefined {
    const files = listLogFiles(this.directory);
    const { current, from } = this;
    if (current !== undefined) return files.find(({ firstSequence }) => firstSequence > current.firstSequence);
    return files.findLast(({ firstSequence }) => firstSequence <= from) ?? files[0];
  }

  private async moveTo(next: LogFile): Promise<void> {
    await this.close();
    this.current = next;
    this.rest = Buffer.alloc(0);
    this.position = 0;
    this.handle = await open(next.file, 'r').catch(() => undefined); // rotated away meanwhile: the next one follows
  }

  private async *linesOfFile(handle: FileHandle): AsyncGenerator<LogLine> {
    for (;;) {
      const { bytesRead } = await handle.read(this.chunk, 0, CHUNK_BYTES, this.position);
      if (bytesRead === 0) return;
      this.position += bytesRead;
      const bytes = Buffer.concat([this.rest, this.chunk.subarray(0, bytesRead)]);
      const { lines, consumed } = parseLogRecords(bytes);
      this.rest = bytes.subarray(consumed);
      yield* lines;
    }
  }
}

/** Wakes a follower when files changed, when the log is finished, or when the follower is to end. */
class Changes {
  private readonly watcher: FSWatcher;
  private changed = true;
  private finished = false;
  private aborted = false;
  private failure: { readonly reason: unknown } | undefined;
  private wake: (() => void) | undefined;
  private readonly onAbort = (): void => this.set(() => (this.aborted = true));

  constructor(
    directory: string,
    private readonly signal: StopSignal,
  ) {
    this.watcher = watch(directory, { persistent: false }, () => this.set(() => (this.changed = true)));
    this.watcher.on('error', () => this.set(() => (this.changed = true)));
    signal.addEventListener('abort', this.onAbort, { once: true });
  }

  /** All output is in the files. */
  finish(): void {
    this.set(() => (this.finished = true));
  }

  fail(reason: unknown): void {
    this.set(() => (this.failure = { reason }));
  }

  /** Before a read: whether there may be more after it. */
  take(): boolean {
    this.changed = false;
    return !this.finished;
  }

  /** After a read: waits until there is more to read; false when aborted. */
  async next(): Promise<boolean> {
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

  private set(change: () => void): void {
    change();
    this.wake?.();
    this.wake = undefined;
  }
}
