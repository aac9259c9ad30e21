import { open, type FileHandle } from 'node:fs/promises';
import type { LogLine } from '@cloudless/runtime';
import { CriLogParser } from './cri-log-parser.js';
import { listLogFiles, findNextSequence, measureSizeBefore, type LogFile } from './log-files.js';

/** Size of one read, in bytes. */
const CHUNK_BYTES = 64 * 1024;

/** The lines that one read of a log file completed. */
export interface ReadChunk {
  readonly lines: readonly LogLine[];
  /**
   * Bytes of the log between the file of these lines and the file that was read before; undefined
   * for the first file, or when unknown. A value above 0 means that rotation removed files before
   * they were read.
   */
  readonly skippedBytes?: number | undefined;
}

/**
 * Reads the files of one log in order, while the container runtime writes and this agent rotates
 * them. Each read continues where the last read ended. The caller must close the cursor.
 */
export class LogCursor {
  private handle: FileHandle | undefined;
  private parser: CriLogParser | undefined;
  /**
   * Sequence number of the first line of the open file. The number becomes the name of the file
   * when the file is rotated.
   */
  private openSequence = 0n;
  /** Bytes of the open file that were read. */
  private position = 0;
  /** Bytes of the log before the open file; undefined when unknown. */
  private bytesBeforeFile: number | undefined;
  private skippedBytes: number | undefined;
  /** File at which the first read begins; undefined for the oldest file. */
  private start: LogFile | undefined;
  private readonly chunk = Buffer.allocUnsafeSlow(CHUNK_BYTES);

  constructor(private readonly directory: string) {}

  /** Sets the file at which the first read begins; undefined for the oldest file. */
  startAt(file: LogFile | undefined): void {
    this.start = file;
  }

  /**
   * Yields the lines from the current position to the end of the newest file.
   * @param isComplete - True when the runtime writes no more lines to the log.
   */
  async *readAvailable(isComplete: boolean): AsyncGenerator<ReadChunk> {
    for (;;) {
      // List the files before the last read of the open file: a file that has a successor then gets
      // no more lines after the list.
      const next =
        this.handle === undefined ? this.findFirstFile(isComplete) : this.findNextFile(isComplete);
      if (this.handle !== undefined) yield* this.readOpenFile();
      if (next === undefined) return;
      const firstSequence =
        next.firstSequence ??
        this.parser?.sequence ??
        (await findFirstSequence(next, listLogFiles(this.directory)));
      await this.openFile(next, firstSequence);
      // The current file may have been rotated between the list and the open. Its name then belongs
      // to another file.
      const rotated = listLogFiles(this.directory).find(
        (file) => file.firstSequence === firstSequence,
      );
      if (next.state === 'current' && rotated !== undefined)
        await this.openFile(rotated, firstSequence);
    }
  }

  /**
   * Yields the lines from the current position to the end of the open file; none without a file.
   */
  async *readOpenFile(): AsyncGenerator<ReadChunk> {
    const { handle, parser } = this;
    if (handle === undefined || parser === undefined) return;
    for (;;) {
      const { bytesRead } = await handle.read(this.chunk, 0, CHUNK_BYTES, this.position);
      if (bytesRead === 0) return;
      this.position += bytesRead;
      yield {
        lines: parser.feed(this.chunk.subarray(0, bytesRead)),
        skippedBytes: this.skippedBytes,
      };
      if (bytesRead < CHUNK_BYTES) return; // the end of the file; later writes wake the follower
    }
  }

  /**
   * Opens a file at its first line, and closes the file that was open. A file that was removed
   * meanwhile is not an error: no file is then open, and the next list contains its successor.
   */
  async openFile({ file }: LogFile, firstSequence: bigint): Promise<void> {
    await this.close();
    const readUpTo =
      this.bytesBeforeFile === undefined ? undefined : this.bytesBeforeFile + this.position;
    this.bytesBeforeFile = measureSizeBefore(this.directory, firstSequence);
    this.skippedBytes =
      readUpTo === undefined || this.bytesBeforeFile === undefined
        ? undefined
        : this.bytesBeforeFile - readUpTo;
    this.openSequence = firstSequence;
    this.parser = new CriLogParser(firstSequence);
    this.position = 0;
    this.handle = await open(file, 'r').catch(() => undefined);
    if (this.handle === undefined) this.parser = undefined;
  }

  /** Closes the open file. */
  async close(): Promise<void> {
    await this.handle?.close();
    this.handle = undefined;
  }

  /** Returns the file at which the first read begins; undefined when there are no files. */
  private findFirstFile(isComplete: boolean): LogFile | undefined {
    const files = listNumberedFiles(this.directory, isComplete);
    const { start } = this;
    const startFile =
      start === undefined
        ? undefined
        : files.find(({ firstSequence }) => firstSequence === start.firstSequence);
    return startFile ?? files[0];
  }

  /** Returns the file after the open file; undefined while the open file may get more lines. */
  private findNextFile(isComplete: boolean): LogFile | undefined {
    const files = listLogFiles(this.directory);
    const { openSequence } = this;
    const openFile = files.find(({ firstSequence }) => firstSequence === openSequence);
    if (openFile === undefined || (openFile.state === 'closing' && !isComplete)) {
      // When no file has the number of the open file, the open file is still the current file, or
      // it was removed. Only after a removal do files with higher numbers exist.
      return openFile === undefined
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
 * Lists the files whose sequence numbers are final, oldest first. The current file is not included
 * while its predecessor may still get lines.
 * @param isComplete - True when the runtime writes no more lines to the log.
 */
export function listNumberedFiles(directory: string, isComplete: boolean): readonly LogFile[] {
  const files = listLogFiles(directory);
  return isComplete || !files.some(({ state }) => state === 'closing')
    ? files
    : files.filter(({ state }) => state !== 'current');
}

/**
 * Returns the sequence number of the first line of a file. For the current file, this is the number
 * after the last line of its predecessor, whose lines are counted.
 * @param files - All files of the log, oldest first.
 */
export async function findFirstSequence(file: LogFile, files: readonly LogFile[]): Promise<bigint> {
  if (file.firstSequence !== undefined) return file.firstSequence;
  const before = files.findLast(({ state }) => state !== 'current');
  return before === undefined ? 1n : findNextSequence(before);
}
