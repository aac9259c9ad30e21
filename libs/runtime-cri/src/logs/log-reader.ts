import { open, type FileHandle } from 'node:fs/promises';
import type { StopSignal } from '@cloudless/base';
import { selectsLine, type LogLine, type LogRequest } from '@cloudless/runtime';
import { CriLogParser } from './cri-log-parser.js';
import { DirectoryChanges } from './directory-changes.js';
import { listLogFiles, sequenceAfter, type LogFile } from './log-files.js';
import { PartialEnds } from './partial-ends.js';

const CHUNK_BYTES = 64 * 1024;

/** What a reader needs to know of the container. */
export interface LogReadOptions {
  readonly directory: string;
  readonly request: LogRequest;
  readonly signal: StopSignal;
  /** The container has ended, and the runtime has written all: asked for once, at the beginning. */
  readonly isComplete: boolean;
  /** Resolves when that is so; only asked when following. */
  readonly completed: () => Promise<void>;
}

/** Reads a log that a runtime may be writing, and we rotating, each line once, in order. */
export async function* readLog(options: LogReadOptions): AsyncGenerator<LogLine> {
  const { directory, request, signal, isComplete } = options;
  if (signal.aborted) return;
  const changes = request.follow && !isComplete ? new DirectoryChanges(directory, signal) : undefined;
  const cursor = new Cursor(directory);
  try {
    if (changes !== undefined) changes.finishWith(options.completed());
    let skip = await seek(cursor, directory, request, isComplete);
    const selected = (lines: readonly LogLine[]): readonly LogLine[] =>
      lines.filter((line) => {
        if (!selectsLine(request, line)) return false;
        if (skip === 0) return true;
        skip -= 1;
        return false;
      });
    const ends = new PartialEnds();
    for (;;) {
      const mayHaveMore = changes?.take() ?? false; // asked before the read: what comes later wakes us again
      for await (const line of cursor.linesUpToNow(isComplete || (changes !== undefined && !mayHaveMore))) {
        if (signal.aborted) return;
        yield* selected(ends.push(line));
      }
      if (changes === undefined || !mayHaveMore) return yield* selected(ends.finish(isComplete || changes !== undefined));
      if (!(await changes.next())) return;
    }
  } finally {
    changes?.close();
    await cursor.close();
  }
}

/** Puts the cursor where the request begins. @returns How many selected lines from there are before the tail. */
async function seek(cursor: Cursor, directory: string, request: LogRequest, isComplete: boolean): Promise<number> {
  const { afterSequence = 0n, tailLines } = request;
  const files = numberedFiles(directory, isComplete);
  if (tailLines === undefined) {
    cursor.startAt(files.findLast(({ firstSequence }) => firstSequence !== undefined && firstSequence <= afterSequence + 1n));
    return 0;
  }
  let count = 0;
  for (const file of [...files].reverse()) {
    const { selected, firstSequence } = await countSelected(file, files, request);
    count += selected;
    cursor.startAt(file);
    if (count >= tailLines || firstSequence <= afterSequence) break;
  }
  return Math.max(0, count - tailLines);
}

/** The files whose lines have their numbers for good: not the current one while the one before it may still grow. */
function numberedFiles(directory: string, ended: boolean): readonly LogFile[] {
  const files = listLogFiles(directory);
  return ended || !files.some(({ state }) => state === 'closing') ? files : files.filter(({ state }) => state !== 'current');
}

async function countSelected(
  file: LogFile,
  files: readonly LogFile[],
  request: LogRequest,
): Promise<{ readonly selected: number; readonly firstSequence: bigint }> {
  const firstSequence = await firstSequenceOf(file, files);
  const cursor = new Cursor('');
  let selected = 0;
  try {
    await cursor.openAt(file, firstSequence);
    for await (const line of cursor.linesOfFile()) if (selectsLine(request, line)) selected += 1;
  } finally {
    await cursor.close();
  }
  return { selected, firstSequence };
}

/** The current file goes on where the one before it ends. */
async function firstSequenceOf(file: LogFile, files: readonly LogFile[]): Promise<bigint> {
  if (file.firstSequence !== undefined) return file.firstSequence;
  const before = files.findLast(({ state }) => state !== 'current');
  return before === undefined ? 1n : sequenceAfter(before);
}

/** A position in the files of a log. */
class Cursor {
  private handle: FileHandle | undefined;
  private parser: CriLogParser | undefined;
  /** Sequence number of the first line of the file that is open: what it will be called once it is rotated. */
  private openSequence = 0n;
  private position = 0;
  private start: LogFile | undefined;
  private readonly chunk = Buffer.allocUnsafe(CHUNK_BYTES);

  constructor(private readonly directory: string) {}

  startAt(file: LogFile | undefined): void {
    this.start = file;
  }

  /** Everything from the position to the end of the newest file. @param ended - Nothing is written any more. */
  async *linesUpToNow(ended: boolean): AsyncGenerator<LogLine> {
    for (;;) {
      const next = this.handle === undefined ? this.first(ended) : this.following(ended); // before the last read of this file
      if (this.handle !== undefined) yield* this.linesOfFile();
      if (next === undefined) return;
      const firstSequence =
        next.firstSequence ?? this.parser?.sequence ?? (await firstSequenceOf(next, listLogFiles(this.directory)));
      await this.openAt(next, firstSequence);
      // The current file may have been rotated away between the look and the opening: then another one carries that name.
      const rotated = listLogFiles(this.directory).find((file) => file.firstSequence === firstSequence);
      if (next.state === 'current' && rotated !== undefined) await this.openAt(rotated, firstSequence);
    }
  }

  async *linesOfFile(): AsyncGenerator<LogLine> {
    const { handle, parser } = this;
    if (handle === undefined || parser === undefined) return;
    for (;;) {
      const { bytesRead } = await handle.read(this.chunk, 0, CHUNK_BYTES, this.position);
      if (bytesRead === 0) return;
      this.position += bytesRead;
      yield* parser.feed(this.chunk.subarray(0, bytesRead));
    }
  }

  async openAt({ file }: LogFile, firstSequence: bigint): Promise<void> {
    await this.close();
    this.openSequence = firstSequence;
    this.parser = new CriLogParser(firstSequence);
    this.position = 0;
    this.handle = await open(file, 'r').catch(() => undefined); // rotated away meanwhile: it is looked for anew
    if (this.handle === undefined) this.parser = undefined;
  }

  async close(): Promise<void> {
    await this.handle?.close();
    this.handle = undefined;
  }

  private first(ended: boolean): LogFile | undefined {
    const files = numberedFiles(this.directory, ended);
    const { start } = this;
    const wanted = start === undefined ? undefined : files.find(({ firstSequence }) => firstSequence === start.firstSequence);
    return wanted ?? files[0];
  }

  /** The file after the open one, once that gets no more lines. */
  private following(ended: boolean): LogFile | undefined {
    const files = listLogFiles(this.directory);
    const { openSequence } = this;
    const own = files.find(({ firstSequence }) => firstSequence === openSequence);
    if (own === undefined || (own.state === 'closing' && !ended)) {
      // Not rotated, or just now; or removed since, when newer ones than ours are there.
      return own === undefined
        ? files.find(({ firstSequence }) => firstSequence !== undefined && firstSequence > openSequence)
        : undefined;
    }
    return files.find(({ firstSequence }) => firstSequence === undefined || firstSequence > openSequence);
  }
}
