import {
  closeSync,
  fstatSync,
  ftruncateSync,
  openSync,
  readFileSync,
  rmSync,
  writeSync,
} from 'node:fs';
import path from 'node:path';
import type { Clock, Log } from '@cloudless/base';
import {
  LineSplitter,
  recordRemovedFiles,
  type LogStream,
  type SplitLine,
} from '@cloudless/runtime';
import { makeDirectorySync } from '@cloudless/app-kit';
import { listLogFiles, formatLogFileName } from './log-files.js';
import { encodeLogRecord, parseLogRecords } from './log-record.js';
import { PendingFile } from './pending-file.js';

/** Where a log is written, and how it is rotated. */
export interface LogWriterOptions {
  /** Created when it does not exist. */
  readonly directory: string;
  readonly clock: Clock;
  readonly log: Log;
  /** Number of files that are kept, at least 2. */
  readonly files: number;
  /** A file of this many bytes or more gets no further lines: the next lines begin a new file. */
  readonly fileBytes: number;
}

/**
 * Writes the output of one container into rotated log files. `append` has written every byte to a
 * file when it returns. A writer that is killed therefore loses nothing, and a new writer on the
 * same directory continues, even in the middle of a line.
 */
export class LogWriter {
  private fd: number;
  private size: number;
  private sequence: bigint;
  private readonly splitters: Readonly<Record<LogStream, LineSplitter>>;
  private readonly pending: Readonly<Record<LogStream, PendingFile>>;
  private isClosed = false;
  private isFailing = false;

  /**
   * Opens the newest file, truncates an incomplete record at its end, and resumes the lines that
   * have no line end yet.
   */
  constructor(private readonly options: LogWriterOptions) {
    const { directory } = options;
    makeDirectorySync(directory, 0o700);
    const newest = listLogFiles(directory).at(-1);
    const bytes = newest === undefined ? Buffer.alloc(0) : readFileSync(newest.file);
    const { lines, consumed } = parseLogRecords(bytes);
    this.sequence = lines.at(-1)?.sequence ?? (newest?.firstSequence ?? 1n) - 1n;
    this.fd = openSync(newest?.file ?? path.join(directory, formatLogFileName(1n)), 'a', 0o600);
    if (consumed < bytes.length) ftruncateSync(this.fd, consumed);
    this.size = consumed;
    const openPending = (stream: LogStream): PendingFile =>
      new PendingFile(path.join(directory, `${stream}.pending`));
    this.pending = { stdout: openPending('stdout'), stderr: openPending('stderr') };
    const createSplitter = (stream: LogStream): LineSplitter => {
      const lastOfStream = lines.findLast((line) => line.stream === stream)?.sequence ?? 0n;
      return new LineSplitter(this.pending[stream].read(lastOfStream));
    };
    this.splitters = { stdout: createSplitter('stdout'), stderr: createSplitter('stderr') };
  }

  /** Appends output of the container. Errors of the disk are logged, not thrown. */
  append(stream: LogStream, chunk: Uint8Array): void {
    if (this.isClosed) return;
    const splitter = this.splitters[stream];
    const hadPending = splitter.pending.length > 0;
    this.write(stream, splitter.feed(chunk));
    if (hadPending || splitter.pending.length > 0)
      this.pending[stream].write(this.sequence, splitter.pending);
  }

  /**
   * Writes the last lines that have no line end, and closes the files. Call it when the output has
   * ended.
   */
  finish(): void {
    if (this.isClosed) return;
    for (const stream of ['stdout', 'stderr'] as const) {
      const last = this.splitters[stream].flush();
      if (last !== undefined) this.write(stream, [last]);
      this.pending[stream].write(this.sequence, new Uint8Array(0));
    }
    this.close();
  }

  /** Closes the files without an end of the last lines. Another writer can continue. */
  close(): void {
    if (this.isClosed) return;
    this.isClosed = true;
    closeSync(this.fd);
    this.pending.stdout.close();
    this.pending.stderr.close();
  }

  private write(stream: LogStream, lines: readonly SplitLine[]): void {
    if (lines.length === 0) return;
    const timeMs = this.options.clock.wallTime();
    let { sequence } = this;
    const records = Buffer.concat(
      lines.map(({ text, partial }) =>
        encodeLogRecord({ sequence: ++sequence, timeMs, stream, text, partial }),
      ),
    );
    try {
      if (this.size >= this.options.fileBytes) this.rotate();
      writeFully(this.fd, records);
      this.size += records.length;
      this.sequence = sequence;
      this.isFailing = false;
    } catch (reason) {
      this.onWriteFailed(reason, lines.length);
    }
  }

  /**
   * Drops lines that cannot be written, because a full disk must not stop the container. The log
   * stays well-formed, and the first failure is logged.
   */
  private onWriteFailed(reason: unknown, lineCount: number): void {
    if (!this.isFailing)
      this.options.log.error('log lines dropped', {
        directory: this.options.directory,
        lineCount,
        error: String(reason),
      });
    this.isFailing = true;
    const sizeOnDisk = fstatSync(this.fd).size;
    if (sizeOnDisk > this.size) ftruncateSync(this.fd, this.size);
  }

  /** Begins a new file, and removes and records the oldest files above the configured number. */
  private rotate(): void {
    const { directory, files } = this.options;
    const nextFd = openSync(
      path.join(directory, formatLogFileName(this.sequence + 1n)),
      'a',
      0o600,
    );
    closeSync(this.fd);
    this.fd = nextFd;
    this.size = 0;
    const all = listLogFiles(directory);
    const surplus = all.slice(0, Math.max(0, all.length - files));
    const keptFrom = all[surplus.length]?.firstSequence;
    if (surplus.length === 0 || keptFrom === undefined) return;
    recordRemovedFiles(directory, surplus, keptFrom);
    for (const { file } of surplus) rmSync(file, { force: true });
  }
}

/**
 * Writes all bytes. A write is short only when the disk is full or a signal arrives. The next write
 * then fails or writes the rest.
 */
function writeFully(fd: number, bytes: Buffer): void {
  let writtenBytes = 0;
  while (writtenBytes < bytes.length) writtenBytes += writeSync(fd, bytes, writtenBytes);
}
