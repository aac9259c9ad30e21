import { open, type FileHandle } from 'node:fs/promises';
import type { LogLine } from '@cloudless/runtime';
import { CriLogParser } from './cri-log-parser.js';
import { listLogFiles, findNextSequence, measureSizeBefore, type LogFile } from './log-files.js';

/** Size of one read, in bytes. */
const CHUNK_BYTES = 64 * 1024;

/** Lines of one read. */
export interface ReadChunk {
  readonly lines: readonly LogLine[];
  /**
   * Bytes of log files between the file of these lines and the file that was read before it;
   * undefined when unknown. A value above 0 means that files were removed before they were read.
   */
  readonly skippedBytes?: number | undefined;
}

/** Reads the rotated files of one log in order, and continues where the last read ended. */
export class LogCursor {
  private handle: FileHandle | undefined;
  private parser: CriLogParser | undefined;
  /**
   * Sequence number of the first line of the open file, which becomes the file's name when it is
   * rotated.
   */
  private openSequence = 0n;
  private position = 0;
  /** Bytes of the log before the open file; undefined when unknown. */
  private bytesBeforeFile: number | undefined;
  private skippedBytes: number | undefined;
  private start: LogFile | undefined;
  private readonly chunk = Buffer.allocUnsafeSlow(CHUNK_BYTES);

  constructor(private readonly directory: string) {}

  startAt(file: LogFile | undefined): void {
    this.start = file;
  }

  /**
   * Yields the lines from the current position to the end of the newest file.
   * @param ended - Whether the log is complete: nothing is written any more.
   */
  async *readAvailable(ended: boolean): AsyncGenerator<ReadChunk> {
    for (;;) {
      // List before the last read of this file.
      const next = this.handle === undefined ? this.findFirstFile(ended) : this.findNextFile(ended);
      if (this.handle !== undefined) yield* this.readOpenFile();
      if (next === undefined) return;
      const firstSequence =
        next.firstSequence ??
        this.parser?.sequence ??
        (await findFirstSequence(next, listLogFiles(this.directory)));
      await this.openFile(next, firstSequence);
      // The current file may have been rotated between listing and opening: another file has that
      // name then.
      const rotated = listLogFiles(this.directory).find(
        (file) => file.firstSequence === firstSequence,
      );
      if (next.state === 'current' && rotated !== undefined)
        await this.openFile(rotated, firstSequence);
    }
  }

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
      if (bytesRead < CHUNK_BYTES) return; // its end; later writes wake the follower
    }
  }

  async openFile({ file }: LogFile, firstSequence: bigint): Promise<void> {
    await this.close();
    const end =
      this.bytesBeforeFile === undefined ? undefined : this.bytesBeforeFile + this.position;
    this.bytesBeforeFile = measureSizeBefore(this.directory, firstSequence);
    this.skippedBytes =
      end === undefined || this.bytesBeforeFile === undefined
        ? undefined
        : this.bytesBeforeFile - end;
    this.openSequence = firstSequence;
    this.parser = new CriLogParser(firstSequence);
    this.position = 0;
    // removed by rotation meanwhile: the next list finds its successor
    this.handle = await open(file, 'r').catch(() => undefined);
    if (this.handle === undefined) this.parser = undefined;
  }

  async close(): Promise<void> {
    await this.handle?.close();
    this.handle = undefined;
  }

  private findFirstFile(ended: boolean): LogFile | undefined {
    const files = listNumberedFiles(this.directory, ended);
    const { start } = this;
    const wanted =
      start === undefined
        ? undefined
        : files.find(({ firstSequence }) => firstSequence === start.firstSequence);
    return wanted ?? files[0];
  }

  /** Returns the file after the open file, once the open file gets no more lines. */
  private findNextFile(ended: boolean): LogFile | undefined {
    const files = listLogFiles(this.directory);
    const { openSequence } = this;
    const own = files.find(({ firstSequence }) => firstSequence === openSequence);
    if (own === undefined || (own.state === 'closing' && !ended)) {
      // The open file is not rotated, or was rotated just now; or it was removed since, when newer
      // files exist.
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
 * Lists the files whose sequence numbers are final: without the current file while its predecessor
 * may still grow.
 */
export function listNumberedFiles(directory: string, ended: boolean): readonly LogFile[] {
  const files = listLogFiles(directory);
  return ended || !files.some(({ state }) => state === 'closing')
    ? files
    : files.filter(({ state }) => state !== 'current');
}

/**
 * Returns the sequence number of the first line of a file. The current file continues where its
 * predecessor ends.
 */
export async function findFirstSequence(file: LogFile, files: readonly LogFile[]): Promise<bigint> {
  if (file.firstSequence !== undefined) return file.firstSequence;
  const before = files.findLast(({ state }) => state !== 'current');
  return before === undefined ? 1n : findNextSequence(before);
}
