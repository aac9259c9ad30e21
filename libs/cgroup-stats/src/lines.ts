import { MalformedCgroupFileError } from './malformed.js';

/** The lines of a file with their numbers, counted from 1; empty ones are left out. */
export function linesOf(text: string): readonly { readonly line: number; readonly text: string }[] {
  return text.split('\n').flatMap((content, index) => (content.trim() === '' ? [] : [{ line: index + 1, text: content.trim() }]));
}

/** Reads `key value` lines; the values stay text until {@link KeyedFile.whole} asks for one. */
export function parseKeyed(file: string, text: string, separator: RegExp = /\s+/): KeyedFile {
  const values = new Map<string, { line: number; value: string }>();
  for (const { line, text: content } of linesOf(text)) {
    const [key = '', value] = content.split(separator, 2);
    if (value === undefined) throw new MalformedCgroupFileError(file, line, 'a line without a value');
    if (!values.has(key)) values.set(key, { line, value: value.trim() });
  }
  return {
    whole(key) {
      const found = values.get(key);
      return found === undefined ? undefined : parseWhole(file, found.line, found.value);
    },
    needed(key) {
      const value = this.whole(key);
      if (value === undefined) throw new MalformedCgroupFileError(file, 0, `${key} is missing`);
      return value;
    },
  };
}

/** A parsed file of keys. Values are whole numbers, exact at any size. */
export interface KeyedFile {
  /** Undefined when the key is absent. */
  whole(key: string): bigint | undefined;
  /** @throws {@link MalformedCgroupFileError} when the key is absent. */
  needed(key: string): bigint;
}

/** The single value of a file that has one line. */
export function parseSingle(file: string, text: string): string {
  const [first, second] = linesOf(text);
  if (first === undefined) throw new MalformedCgroupFileError(file, 0, 'the file is empty');
  if (second !== undefined) throw new MalformedCgroupFileError(file, second.line, 'more than one line');
  return first.text;
}

/** The kernel's counters have 64 bits: 20 digits. */
const WHOLE = /^\d{1,20}$/;

export function parseWhole(file: string, line: number, text: string): bigint {
  if (!WHOLE.test(text))
    throw new MalformedCgroupFileError(file, line, `${JSON.stringify(text.slice(0, 40))} is not a whole number`);
  return BigInt(text);
}
