import { open, type FileHandle } from 'node:fs/promises';
import type { LogLine } from '@cloudless/runtime';
import { CriLogParser } from './cri-log-parser.js';
import { listLogFiles, sequenceAfter, sizeBefore, type LogFile } from './log-files.js';

/** Bytes that are read and parsed at a time. */
const CHUNK_BYTES = 64 * 1024;

/** Lines that were read together. */
export interface ReadLines {
  readonly lines: readonly LogLine[];
  /**
   * Bytes of log files between the file of these lines and the file that was read before; undefined
   * when unknown. Above 0, files were removed before they were read.
   */
  readonly passedOver?: number | undefined;
}

/** A position in the files of a log. */
export class LogCursor {
  private handle: FileHandle | undefined;
  private parser: CriLogParser | undefined;
  /**
   * Sequence number of the first line of the file that is open: what it will be called once it is
   * rotated.
   */
  private openSequence = 0n;
  private position = 0;
  /** Size of the log before the open file; undefined when not known. */
  private before: number | undefined;
  private passedOver: number | undefined;
  private start: LogFile | undefined;
  private readonly chunk = Buffer.allocUnsafeSlow(CHUNK_BYTES);

  constructor(private readonly directory: string) {}

  startAt(file: LogFile | undefined): void {
    this.start = file;
  }

  /**
   * Everything from the position to the end of the newest file.
   * @param ended - Nothing is written any more.
   */
  async *linesUpToNow(ended: boolean): AsyncGenerator<ReadLines> {
    for (;;) {
      // before the last read of this file
      const next = this.handle === undefined ? this.first(ended) : this.following(ended);
      if (this.handle !== undefined) yield* this.linesOfFile();
      if (next === undefined) return;
      const firstSequence =
        next.firstSequence ??
        this.parser?.sequence ??
        (await firstSequenceOf(next, listLogFiles(this.directory)));
      await this.openAt(next, firstSequence);
      // The current file may have been rotated away between the look and the opening: then another
      // one carries that name.
      const rotated = listLogFiles(this.directory).find(
        (file) => file.firstSequence === firstSequence,
      );
      if (next.state === 'current' && rotated !== undefined)
        await this.openAt(rotated, firstSequence);
    }
  }

  async *linesOfFile(): AsyncGenerator<ReadLines> {
    const { handle, parser } = this;
    if (handle === undefined || parser === undefined) return;
    for (;;) {
      const { bytesRead } = await handle.read(this.chunk, 0, CHUNK_BYTES, this.position);
      if (bytesRead === 0) return;
      this.position += bytesRead;
      yield { lines: parser.feed(this.chunk.subarray(0, bytesRead)), passedOver: this.passedOver };
      if (bytesRead < CHUNK_BYTES) return; // its end: what is written later is told as a change
    }
  }

  async openAt({ file }: LogFile, firstSequence: bigint): Promise<void> {
    await this.close();
    const end = this.before === undefined ? undefined : this.before + this.position;
    this.before = sizeBefore(this.directory, firstSequence);
    this.passedOver =
      end === undefined || this.before === undefined ? undefined : this.before - end;
    this.openSequence = firstSequence;
    this.parser = new CriLogParser(firstSequence);
    this.position = 0;
    // rotated away meanwhile: it is looked for anew
    this.handle = await open(file, 'r').catch(() => undefined);
    if (this.handle === undefined) this.parser = undefined;
  }

  async close(): Promise<void> {
    await this.handle?.close();
    this.handle = undefined;
  }

  private first(ended: boolean): LogFile | undefined {
    const files = numberedFiles(this.directory, ended);
    const { start } = this;
    const wanted =
      start === undefined
        ? undefined
        : files.find(({ firstSequence }) => firstSequence === start.firstSequence);
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
        ? files.find(
            ({ firstSequence }) => firstSequence !== undefined && firstSequence > openSequence,
          )
        : undefined;
    }
    return files.find(
      ({ firstSequence }) => firstSequence === undefined || firstSequence > openSequence,
    );
  }
}

/**
 * The files whose lines have their numbers for good: not the current one while the one before it
 * may still grow.
 */
export function numberedFiles(directory: string, ended: boolean): readonly LogFile[] {
  const files = listLogFiles(directory);
  return ended || !files.some(({ state }) => state === 'closing')
    ? files
    : files.filter(({ state }) => state !== 'current');
}

/** The current file goes on where the one before it ends. */
export async function firstSequenceOf(file: LogFile, files: readonly LogFile[]): Promise<bigint> {
  if (file.firstSequence !== undefined) return file.firstSequence;
  const before = files.findLast(({ state }) => state !== 'current');
  return before === undefined ? 1n : sequenceAfter(before);
}
