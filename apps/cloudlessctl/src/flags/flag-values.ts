import type { JsonValue } from '@bufbuild/protobuf';
import { createUsageFailure } from '../call/failure.js';
import { toDurationJson } from '../manifest/read-scalar.js';
import { parseDuration } from '../quantity.js';
import type { Parsed } from '../quantity.js';
import { formatWord } from '../output/human.js';
import { describeExpectedEnum, findEnumName } from './enum-words.js';

/** A flag that sets one field of a workload spec. */
export interface SpecFlag {
  /** Flag with its hyphens: `--image`. */
  readonly flag: string;
  /** Placeholder of the value in the help: `reference`. */
  readonly value: string;
  /** The values that shell completion offers. Default: those of the placeholder. */
  readonly values?: readonly string[];
  readonly description: string;
  /** Path of the field below `spec`, as in an update mask: `image_pull.policy`. */
  readonly path: string;
  /**
   * Another field, for the values that `matches` accepts. An update sets one of the two fields and
   * clears the other field.
   */
  readonly alternative?: {
    readonly path: string;
    matches(texts: readonly string[]): boolean;
  };
  /** True when the flag may be given several times with different values. Default: false. */
  readonly repeatable?: boolean;
  /**
   * Returns the value of the field in protobuf JSON.
   * @param texts - All values of the flag, in order. The last value of a flag that is not
   *   repeatable is used.
   * @param before - The current value of the field, for flags that add to a map.
   * @throws {@link CliFailure} with exit code 2 for an invalid value.
   */
  parse(texts: readonly string[], before: JsonValue | undefined): JsonValue;
  /** True when the flag adds to the current value of the field. Default: false. */
  readonly addsToCurrent?: boolean;
}

/** A flag without a value that sets a field to true, or to false with the prefix `--no-`. */
export interface SpecSwitch {
  readonly flag: string;
  readonly description: string;
  /** Path of the field below `spec`, as in an update mask. */
  readonly path: string;
  /**
   * True for a message without fields: the flag sets the message, `--no-NAME` removes the message.
   */
  readonly isMessage?: boolean;
}

/** Appends a value to the values of an option. Argument parser for the commander library. */
export function collectValue(
  text: string,
  before: readonly string[] | undefined,
): readonly string[] {
  return [...(before ?? []), text];
}

/** Returns the last value of a flag. */
export const parseText = (texts: readonly string[]): JsonValue => texts.at(-1) ?? '';
/** Returns true when the flag was given once with the value `none`, which sets an empty list. */
export const isNone = (texts: readonly string[]): boolean =>
  texts.length === 1 && texts[0] === 'none';

/**
 * Parses the numeric id of a user or group.
 * @param flag - The flag, for the error message.
 * @param hint - Appended to the error message.
 */
export function parseNumericId(flag: string, text = '', hint = ''): JsonValue {
  if (/^\d{1,10}$/.test(text)) return text;
  throw createUsageFailure(`${flag}: expected a numeric id, got ${JSON.stringify(text)}${hint}`);
}

/** Returns all values of a flag. */
export const parseList = (texts: readonly string[]): JsonValue => [...texts];

/** Creates a parser for a non-negative whole number, see {@link parseWholeNumber}. */
export function createWholeNumberParser(
  flag: string,
  greatest?: number,
): (texts: readonly string[]) => JsonValue {
  return (texts) => parseWholeNumber(flag, texts.at(-1) ?? '', greatest);
}

/**
 * Parses a non-negative whole number of at most 9 digits.
 * @param subject - The flag or the meaning of the number, for the error message.
 * @param greatest - Greatest number that the API accepts, for the message about a number with more
 *   digits. The coordinator refuses other numbers above. Default: the greatest with 9 digits.
 * @throws {@link CliFailure} with exit code 2.
 */
export function parseWholeNumber(subject: string, value: string, greatest = 999_999_999): number {
  if (/^\d{1,9}$/.test(value)) return Number(value);
  const range = /^\d+$/.test(value) ? ` from 0 to ${greatest}` : '';
  throw createUsageFailure(
    `${subject}: expected a whole number${range}, got ${JSON.stringify(value)}`,
  );
}

/**
 * Creates a parser for a number with a unit.
 * @param parse - Parses the text.
 * @param to - Converts the number to protobuf JSON.
 */
export function createUnitParser(
  flag: string,
  parse: (text: string) => Parsed<bigint>,
  to: (value: bigint) => JsonValue,
): (texts: readonly string[]) => JsonValue {
  return (texts) => {
    const parsed = parse(texts.at(-1) ?? '');
    if ('problem' in parsed) throw createUsageFailure(`${flag}: ${parsed.problem}`);
    return to(parsed.value);
  };
}

/** Creates a parser for the names of an enum in any usual spelling, see {@link findEnumName}. */
export function createEnumParser(
  flag: string,
  enumNames: readonly string[],
): (texts: readonly string[]) => JsonValue {
  return (texts) => {
    const text = texts.at(-1) ?? '';
    const name = findEnumName(text, enumNames);
    if (name !== undefined) return name;
    throw createUsageFailure(`${flag}: ${describeExpectedEnum(text, enumNames)}`);
  };
}

/** Creates a parser that applies `key=value` (set) and `key-` (remove) to the current map. */
export function createPairParser(
  flag: string,
): (texts: readonly string[], before: JsonValue | undefined) => JsonValue {
  return (texts, before) => {
    const result = new Map(Object.entries((before ?? {}) as Record<string, JsonValue>));
    for (const pair of parsePairs(flag, texts)) {
      if (pair.value === undefined) result.delete(pair.key);
      else result.set(pair.key, pair.value);
    }
    return Object.fromEntries(result);
  };
}

/**
 * Parses `key=value` and `key-`. The value may contain equals signs.
 * @param subject - The flag or the meaning of the pairs, for the error message.
 * @returns The pairs in order; a pair without a value removes the key.
 */
export function parsePairs(
  subject: string,
  texts: readonly string[],
): readonly { readonly key: string; readonly value?: string }[] {
  return texts.map((text) => {
    const equalsIndex = text.indexOf('=');
    if (equalsIndex > 0)
      return { key: text.slice(0, equalsIndex), value: text.slice(equalsIndex + 1) };
    if (equalsIndex < 0 && text.length > 1 && text.endsWith('-')) return { key: text.slice(0, -1) };
    throw createUsageFailure(
      `${subject}: expected key=value, or key- to remove it, got ${JSON.stringify(text)}`,
    );
  });
}

/** Creates a parser for a duration such as `500ms` or `1h30m`. */
export const createDurationParser = (flag: string): SpecFlag['parse'] =>
  createUnitParser(flag, parseDuration, toDurationJson);
/** Returns the value names of an enum. */
export const listEnumNames = (schema: {
  readonly values: readonly { readonly name: string }[];
}): readonly string[] => schema.values.map(({ name }) => name);
/** Returns the value names of an enum as tables show them: `OnFailure`. */
export const listEnumWords = (schema: Parameters<typeof listEnumNames>[0]): readonly string[] =>
  listEnumNames(schema).map(formatWord);

/**
 * Parses the number of a port.
 * @param flag - The flag, for the error message.
 * @throws {@link CliFailure} with exit code 2 unless the number is 1 to 65535.
 */
export function parsePortNumber(flag: string, text = ''): number {
  const port = Number(text);
  if (!/^\d+$/.test(text) || port < 1 || port > 65_535)
    throw createUsageFailure(`${flag}: a port is a number from 1 to 65535, got ${text}`);
  return port;
}
