import type { LogLine, LogStream } from '@cloudless/runtime';

const LINE_FEED = 10;
const SPACE = 32;
const DIGIT_ZERO = 48;
const DIGIT_NINE = 57;
const LETTER_FULL = 70;
const LETTER_PARTIAL = 80;
const LETTER_STDERR = 101;
const LETTER_STDOUT = 111;
const MAX_SEQUENCE_DIGITS = 19;
const MAX_TIME_DIGITS = 16;
/** So many digits are a whole number of JavaScript in any case. */
const EXACT_DIGITS = 15;
const LETTERS: Readonly<Record<LogStream, string>> = { stdout: 'o', stderr: 'e' };

/**
 * One line of a log file: `<sequence> <milliseconds> <o|e><F|P> <bytes>` and a line feed; F is a
 * full line (or its last part), P one that goes on. The bytes never hold a line feed, so a file can
 * be cut at any of them.
 */
export function encodeLogRecord({ sequence, timeMs, stream, partial, text }: LogLine): Buffer {
  const header = `${sequence} ${Math.trunc(timeMs)} ${LETTERS[stream]}${partial ? 'P' : 'F'} `;
  const record = Buffer.allocUnsafe(header.length + text.length + 1);
  record.write(header, 0, 'latin1');
  record.set(text, header.length);
  record[record.length - 1] = LINE_FEED;
  return record;
}

/**
 * Reads one line of a log file, without its line feed; undefined when it is damaged. No regular
 * expression, and no copy of the text: followers read many lines.
 */
export function parseLogRecord(bytes: Buffer, start = 0, end = bytes.length): LogLine | undefined {
  const sequenceEnd = digitsEnd(bytes, start, Math.min(end, start + MAX_SEQUENCE_DIGITS));
  if (sequenceEnd === start || bytes[sequenceEnd] !== SPACE) return undefined;
  const timeStart = sequenceEnd + 1;
  const timeEnd = digitsEnd(bytes, timeStart, Math.min(end, timeStart + MAX_TIME_DIGITS));
  const textStart = timeEnd + ' oF '.length;
  if (
    timeEnd === timeStart ||
    bytes[timeEnd] !== SPACE ||
    bytes[textStart - 1] !== SPACE ||
    textStart > end
  )
    return undefined;
  const stream = bytes[timeEnd + 1];
  const completeness = bytes[timeEnd + 2];
  if (stream !== LETTER_STDOUT && stream !== LETTER_STDERR) return undefined;
  if (completeness !== LETTER_FULL && completeness !== LETTER_PARTIAL) return undefined;
  const exact = sequenceEnd - start <= EXACT_DIGITS;
  return {
    sequence: BigInt(
      exact ? wholeNumber(bytes, start, sequenceEnd) : bytes.toString('latin1', start, sequenceEnd),
    ),
    timeMs: wholeNumber(bytes, timeStart, timeEnd),
    stream: stream === LETTER_STDOUT ? 'stdout' : 'stderr',
    partial: completeness === LETTER_PARTIAL,
    text: new Uint8Array(bytes.buffer, bytes.byteOffset + textStart, end - textStart),
  };
}

/** Where digits end that begin at `from`, at `to` at the latest. */
function digitsEnd(bytes: Buffer, from: number, to: number): number {
  let at = from;
  for (; at < to; at += 1) {
    const byte = bytes[at] ?? 0;
    if (byte < DIGIT_ZERO || byte > DIGIT_NINE) break;
  }
  return at;
}

function wholeNumber(bytes: Buffer, from: number, to: number): number {
  let value = 0;
  for (let at = from; at < to; at += 1)
    value = value * 10 + ((bytes[at] ?? DIGIT_ZERO) - DIGIT_ZERO);
  return value;
}

/** What a piece of a log file holds. */
export interface ParsedLog {
  /**
   * Damaged ones are left out. Their texts lie in the piece: it must not be written to afterwards.
   */
  readonly lines: readonly LogLine[];
  /**
   * Bytes up to and with the last line feed; what follows is a record that has not been written to
   * its end.
   */
  readonly consumed: number;
}

/** Reads the records of a piece of a log file that begins at the beginning of one. */
export function parseLogRecords(bytes: Buffer): ParsedLog {
  const lines: LogLine[] = [];
  let consumed = 0;
  for (;;) {
    const end = bytes.indexOf(LINE_FEED, consumed);
    if (end < 0) return { lines, consumed };
    const line = parseLogRecord(bytes, consumed, end);
    if (line !== undefined) lines.push(line);
    consumed = end + 1;
  }
}
