import { statSync } from 'node:fs';
import { open, type FileHandle } from 'node:fs/promises';
import { countBytesBefore, readRemovedLines, type LogLine } from '@cloudless/runtime';
import { listLogFiles, type LogFile } from './log-files.js';
import { parseLogRecords } from './log-record.js';

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
  private current: LogFile | undefined;
  private rest: Buffer = Buffer.alloc(0);
  private position = 0;
  /** Bytes of the log before the open file; undefined when unknown. */
  private bytesBeforeFile: number | undefined;
  private skippedBytes: number | undefined;
  private readonly chunk = Buffer.allocUnsafeSlow(CHUNK_BYTES);

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
      // List before the last read: a file that has a successor gets no more lines.
      const next = mustList ? this.findNextFile() : undefined;
      for (let hasMore = this.handle !== undefined; hasMore;) {
        const { read, isShort } = await this.read();
        if (read !== undefined) yield read;
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
    // removed by rotation meanwhile: the next file follows
    this.handle = await open(next.file, 'r').catch(() => undefined);
  }

  private measureBytesBefore({ firstSequence }: LogFile): number | undefined {
    const files = listLogFiles(this.directory);
    const measured = files.flatMap((file) => {
      const found = statSync(file.file, { throwIfNoEntry: false });
      return found === undefined ? [] : [{ firstSequence: file.firstSequence, bytes: found.size }];
    });
    return countBytesBefore(firstSequence, measured, readRemovedLines(this.directory));
  }

  /**
   * Reads the next lines of the open file. A short read has reached the end of the file; the
   * follower is woken by later writes.
   */
  private async read(): Promise<{ readonly read?: ReadChunk; readonly isShort: boolean }> {
    const { bytesRead = 0 } =
      (await this.handle?.read(this.chunk, 0, CHUNK_BYTES, this.position)) ?? {};
    const isShort = bytesRead < CHUNK_BYTES;
    if (bytesRead === 0) return { isShort };
    this.position += bytesRead;
    const bytes = Buffer.concat([this.rest, this.chunk.subarray(0, bytesRead)]);
    const { lines, consumed } = parseLogRecords(bytes);
    this.rest = bytes.subarray(consumed);
    return { read: { lines, skippedBytes: this.skippedBytes }, isShort };
  }
}
