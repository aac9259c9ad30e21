import type { LogLine, LogStream } from '@cloudless/runtime';

const LINE_FEED = 10;
const SPACE = 32;
const DIGIT_ZERO = 48;
const DIGIT_NINE = 57;
const LETTER_FULL = 70;
const LETTER_PARTIAL = 80;
const LETTER_STDERR = 101;
const LETTER_STDOUT = 111;
/** Digits of the largest signed 64-bit number. */
const MAX_SEQUENCE_DIGITS = 19;
/** Digits of the largest exact integer of JavaScript. */
const MAX_TIME_DIGITS = 16;
/** Decimal numbers of up to this many digits are exact in JavaScript. */
const EXACT_DIGITS = 15;
const LETTERS: Readonly<Record<LogStream, string>> = { stdout: 'o', stderr: 'e' };

/**
 * Encodes one line of a log file: `<sequence> <milliseconds> <o|e><F|P> <bytes>` and a line feed.
 * `o` is stdout and `e` is stderr. F marks a full line or its last part, P a part that continues.
 * The bytes never contain a line feed, so every line feed ends a record.
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
 * Parses one record, without its line feed. Uses no regular expression and does not copy the text,
 * because followers parse many lines.
 * @param start - Offset of the first byte of the record. `end`: offset after its last byte.
 * @returns Undefined for a damaged record.
 */
export function parseLogRecord(bytes: Buffer, start = 0, end = bytes.length): LogLine | undefined {
  const sequenceEnd = findDigitsEnd(bytes, start, Math.min(end, start + MAX_SEQUENCE_DIGITS));
  if (sequenceEnd === start || bytes[sequenceEnd] !== SPACE) return undefined;
  const timeStart = sequenceEnd + 1;
  const timeEnd = findDigitsEnd(bytes, timeStart, Math.min(end, timeStart + MAX_TIME_DIGITS));
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
  const isExact = sequenceEnd - start <= EXACT_DIGITS;
  return {
    sequence: BigInt(
      isExact
        ? parseWholeNumber(bytes, start, sequenceEnd)
        : bytes.toString('latin1', start, sequenceEnd),
    ),
    timeMs: parseWholeNumber(bytes, timeStart, timeEnd),
    stream: stream === LETTER_STDOUT ? 'stdout' : 'stderr',
    partial: completeness === LETTER_PARTIAL,
    text: new Uint8Array(bytes.buffer, bytes.byteOffset + textStart, end - textStart),
  };
}

/** Returns the offset after the digits that begin at `from`, at most `to`. */
function findDigitsEnd(bytes: Buffer, from: number, to: number): number {
  let at = from;
  for (; at < to; at += 1) {
    const byte = bytes[at] ?? 0;
    if (byte < DIGIT_ZERO || byte > DIGIT_NINE) break;
  }
  return at;
}

/** Parses a decimal number; exact up to {@link EXACT_DIGITS}. */
function parseWholeNumber(bytes: Buffer, from: number, to: number): number {
  let value = 0;
  for (let at = from; at < to; at += 1)
    value = value * 10 + ((bytes[at] ?? DIGIT_ZERO) - DIGIT_ZERO);
  return value;
}

/** Records of a part of a log file. */
export interface ParsedLog {
  /**
   * Valid records. Their texts refer to the parsed buffer, which must not be changed afterwards.
   */
  readonly lines: readonly LogLine[];
  /** Bytes up to and including the last line feed. The rest is an incomplete record. */
  readonly consumed: number;
}

/**
 * Parses the records of a part of a log file that begins at a record boundary. Damaged records are
 * omitted.
 */
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
