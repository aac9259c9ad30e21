import type { LogLine, LogStream } from '@cloudless/runtime';

const LINE_FEED = 10;
/** 20 digits, 16 digits, two letters and the spaces between. */
const MAX_HEADER_BYTES = 42;
const HEADER = /^(\d{1,19}) (\d{1,16}) ([oe])([FP]) /;
const LETTERS: Readonly<Record<LogStream, string>> = { stdout: 'o', stderr: 'e' };

/**
 * One line of a log file: `<sequence> <milliseconds> <o|e><F|P> <bytes>` and a line feed; F is a full line (or its last
 * part), P one that goes on. The bytes never hold a line feed, so a file can be cut at any of them.
 */
export function encodeLogRecord({ sequence, timeMs, stream, partial, text }: LogLine): Buffer {
  const header = Buffer.from(`${sequence} ${Math.trunc(timeMs)} ${LETTERS[stream]}${partial ? 'P' : 'F'} `, 'latin1');
  return Buffer.concat([header, text, Buffer.of(LINE_FEED)]);
}

/** Reads one line of a log file, without its line feed; undefined when it is damaged. */
export function parseLogRecord(line: Buffer): LogLine | undefined {
  const match = HEADER.exec(line.toString('latin1', 0, MAX_HEADER_BYTES));
  if (match === null) return undefined;
  const [header, sequence = '', timeMs = '', stream, completeness] = match;
  return {
    sequence: BigInt(sequence),
    timeMs: Number(timeMs),
    stream: stream === 'o' ? 'stdout' : 'stderr',
    partial: completeness === 'P',
    text: new Uint8Array(line.subarray(header.length)),
  };
}

/** What a piece of a log file holds. */
export interface ParsedLog {
  /** Damaged ones are left out. */
  readonly lines: readonly LogLine[];
  /** Bytes up to and with the last line feed; what follows is a record that has not been written to its end. */
  readonly consumed: number;
}

/** Reads the records of a piece of a log file that begins at the beginning of one. */
export function parseLogRecords(bytes: Buffer): ParsedLog {
  const lines: LogLine[] = [];
  let consumed = 0;
  for (;;) {
    const end = bytes.indexOf(LINE_FEED, consumed);
    if (end < 0) return { lines, consumed };
    const line = parseLogRecord(bytes.subarray(consumed, end));
    if (line !== undefined) lines.push(line);
    consumed = end + 1;
  }
}
