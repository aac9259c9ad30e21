import { MalformedCgroupFileError } from './malformed.js';

/** A line of a file. */
export interface Line {
  /** Number of the line, counted from 1. */
  readonly line: number;
  /** Without surrounding whitespace, not empty. */
  readonly text: string;
}

/**
 * Yields the non-empty lines of a file. Holds one line at a time, whatever the size of the file.
 */
export function* iterateLines(text: string): Generator<Line> {
  for (let line = 1, start = 0; start < text.length; line += 1) {
    const newline = text.indexOf('\n', start);
    const end = newline < 0 ? text.length : newline;
    const content = text.slice(start, end).trim();
    if (content !== '') yield { line, text: content };
    start = end + 1;
  }
}

/**
 * Yields the fields of a line, which whitespace separates. Holds one field at a time, however many
 * the line has.
 */
export function* iterateFields(line: string): Generator<string> {
  const field = /\S+/g;
  for (let found = field.exec(line); found !== null; found = field.exec(line)) yield found[0];
}

/**
 * Parses a file of `key value` lines. Keeps only the first value of each key in `wanted`, so that
 * the memory is bounded for a file of any length.
 * @param file - File name for error messages.
 * @throws {@link MalformedCgroupFileError} when a line has no value, or the value of a wanted key
 *   is not a whole number.
 */
export function parseKeyed(
  file: string,
  text: string,
  wanted: readonly string[],
  separator: RegExp = /\s+/,
): KeyedFile {
  const keys = new Set(wanted);
  const values = new Map<string, bigint>();
  for (const { line, text: content } of iterateLines(text)) {
    const end = content.search(separator);
    if (end < 0) throw new MalformedCgroupFileError(file, line, 'a line without a value');
    const key = content.slice(0, end);
    if (keys.has(key) && !values.has(key))
      values.set(key, parseWhole(file, line, content.split(separator, 2)[1]?.trim() ?? ''));
  }
  return {
    whole: (key) => values.get(key),
    requireWhole(key) {
      const value = values.get(key);
      if (value === undefined) throw new MalformedCgroupFileError(file, 0, `${key} is missing`);
      return value;
    },
  };
}

/** A parsed file of keys. Values are whole numbers, exact at any size. */
export interface KeyedFile {
  /** Returns the value of a wanted key; undefined when the key is absent. */
  whole(key: string): bigint | undefined;
  /**
   * Returns the value of a wanted key.
   * @throws {@link MalformedCgroupFileError} when the key is absent.
   */
  requireWhole(key: string): bigint;
}

/**
 * Returns the text of a file with one line, without surrounding whitespace.
 * @throws {@link MalformedCgroupFileError} when the file is empty or has several lines.
 */
export function parseSingle(file: string, text: string): string {
  const lines = iterateLines(text);
  const first = lines.next();
  if (first.done === true) throw new MalformedCgroupFileError(file, 0, 'the file is empty');
  const second = lines.next();
  if (second.done !== true)
    throw new MalformedCgroupFileError(file, second.value.line, 'more than one line');
  return first.value.text;
}

/** Kernel counters have 64 bits, which is at most 20 digits. */
const WHOLE = /^\d{1,20}$/;

/**
 * Parses a whole number of up to 20 digits.
 * @param line - Number of the line, for the error message.
 * @throws {@link MalformedCgroupFileError}
 */
export function parseWhole(file: string, line: number, text: string): bigint {
  if (!WHOLE.test(text))
    throw new MalformedCgroupFileError(
      file,
      line,
      `${JSON.stringify(text.slice(0, 40))} is not a whole number`,
    );
  return BigInt(text);
}
