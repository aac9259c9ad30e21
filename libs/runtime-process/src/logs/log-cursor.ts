import { statSync } from 'node:fs';
import { open, type FileHandle } from 'node:fs/promises';
import { countBytesBefore, readRemovedLines, type LogLine } from '@cloudless/runtime';
import { listLogFiles, type LogFile } from './log-files.js';
import { parseLogRecords } from './log-record.js';

/** Largest size of one read, in bytes. */
const CHUNK_BYTES = 64 * 1024;

/** The complete lines of one read. */
export interface ReadChunk {
  readonly lines: readonly LogLine[];
  /**
   * Bytes of log files between the file of these lines and the file that was read before;
   * undefined when unknown. A value above 0 means that files were removed before they were read.
   */
  readonly skippedBytes?: number | undefined;
}

/**
 * Reads the rotated files of one log in order. Each call of `readAvailable` continues where the
 * last call ended. Call `close` at the end.
 */
export class LogCursor {
  private handle: FileHandle | undefined;
  private current: LogFile | undefined;
  /** Bytes of an incomplete record at the end of the last read. */
  private rest: Buffer = Buffer.alloc(0);
  /** Offset of the next read in the open file. */
  private position = 0;
  /** Bytes of the log before the open file; undefined when unknown. */
  private bytesBeforeFile: number | undefined;
  private skippedBytes: number | undefined;
  private readonly buffer = Buffer.allocUnsafeSlow(CHUNK_BYTES);

  /** @param from - Sequence number of the first requested line. */
  constructor(
    private readonly directory: string,
    private readonly from: bigint,
  ) {}

  /**
   * Yields the lines from the current position to the end of the newest file.
   * @param mayHaveNewFiles - False when no file was created or removed since the last call; the
   *   directory is then not listed again.
   */
  async *readAvailable(mayHaveNewFiles = true): AsyncGenerator<ReadChunk> {
    let mustList = mayHaveNewFiles || this.handle === undefined;
    for (;;) {
      // The search for the next file comes before the reads of the open file: a file that already
      // has a successor gets no more lines, so the reads find all its lines.
      const next = mustList ? this.findNextFile() : undefined;
      for (let hasMore = this.handle !== undefined; hasMore;) {
        const { chunk, isShort } = await this.read();
        if (chunk !== undefined) yield chunk;
        hasMore = !isShort;
      }
      if (next === undefined) return;
      await this.openFile(next);
      mustList = true;
    }
  }

  async close(): Promise<void> {
    await this.handle?.close();
    this.handle = undefined;
  }

  private findNextFile(): LogFile | undefined {
    const files = listLogFiles(this.directory);
    const { current, from } = this;
    if (current !== undefined)
      return files.find(({ firstSequence }) => firstSequence > current.firstSequence);
    return files.findLast(({ firstSequence }) => firstSequence <= from) ?? files[0];
  }

  private async openFile(next: LogFile): Promise<void> {
    await this.close();
    const end =
      this.bytesBeforeFile === undefined ? undefined : this.bytesBeforeFile + this.position;
    this.bytesBeforeFile = this.measureBytesBefore(next);
    this.skippedBytes =
      end === undefined || this.bytesBeforeFile === undefined
        ? undefined
        : this.bytesBeforeFile - end;
    this.current = next;
    this.rest = Buffer.alloc(0);
    this.position = 0;
    // When rotation has removed the file meanwhile, the next file is read instead.
    this.handle = await open(next.file, 'r').catch(() => undefined);
  }

  private measureBytesBefore({ firstSequence }: LogFile): number | undefined {
    const files = listLogFiles(this.directory);
    const measured = files.flatMap((file) => {
      const stats = statSync(file.file, { throwIfNoEntry: false });
      return stats === undefined ? [] : [{ firstSequence: file.firstSequence, bytes: stats.size }];
    });
    return countBytesBefore(firstSequence, measured, readRemovedLines(this.directory));
  }

  /**
   * Reads the next lines of the open file. A short read has reached the end of the file; a later
   * write wakes a follower.
   */
  private async read(): Promise<{ readonly chunk?: ReadChunk; readonly isShort: boolean }> {
    const { bytesRead = 0 } =
      (await this.handle?.read(this.buffer, 0, CHUNK_BYTES, this.position)) ?? {};
    const isShort = bytesRead < CHUNK_BYTES;
    if (bytesRead === 0) return { isShort };
    this.position += bytesRead;
    const bytes = Buffer.concat([this.rest, this.buffer.subarray(0, bytesRead)]);
    const { lines, consumed } = parseLogRecords(bytes);
    this.rest = bytes.subarray(consumed);
    return { chunk: { lines, skippedBytes: this.skippedBytes }, isShort };
  }
}
