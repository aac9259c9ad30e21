import type { JsonValue } from '@bufbuild/protobuf';
import { createUsageFailure } from '../call/failure.js';
import { toDurationJson } from '../manifest/read-scalar.js';
import { parseDuration } from '../quantity.js';
import type { Parsed } from '../quantity.js';
import { suggestSimilar } from '../suggest.js';

/** A flag that sets one field of a workload spec. */
export interface SpecFlag {
  readonly flag: string;
  readonly value: string;
  readonly description: string;
  /** Below `spec`, as in an update mask. */
  readonly path: string;
  /** Path for values that belong to another field. An update clears the field that is not set. */
  readonly alternative?: {
    readonly path: string;
    matches(texts: readonly string[]): boolean;
  };
  readonly repeatable?: boolean;
  /**
   * Returns the value of the field in protobuf JSON.
   * @param before - The current value, for flags that add to a map.
   */
  parse(texts: readonly string[], before: JsonValue | undefined): JsonValue;
  /** True when the flag adds to the current value of the field. */
  readonly addsToCurrent?: boolean;
}

/** A flag without a value that sets a field to true, or to false with the prefix `--no-`. */
export interface SpecSwitch {
  readonly flag: string;
  readonly description: string;
  /** Below `spec`, as in an update mask. */
  readonly path: string;
}

/** Collects the values of a repeatable option, for commander. */
export function collectValue(
  given: string,
  before: readonly string[] | undefined,
): readonly string[] {
  return [...(before ?? []), given];
}

/** Returns the last given value. */
export const parseText = (texts: readonly string[]): JsonValue => texts.at(-1) ?? '';
/** Returns true when the flag was given once with the value `none`, which sets an empty list. */
export const isNone = (texts: readonly string[]): boolean =>
  texts.length === 1 && texts[0] === 'none';

/**
 * Parses the numeric id of a user or group.
 * @param hint - Appended to the error message.
 */
export function parseNumericId(flag: string, given = '', hint = ''): JsonValue {
  if (/^\d{1,10}$/.test(given)) return given;
  throw createUsageFailure(`${flag}: expected a numeric id, got ${JSON.stringify(given)}${hint}`);
}

/** Returns all given values. */
export const parseList = (texts: readonly string[]): JsonValue => [...texts];

/** Creates a parser for a non-negative whole number. */
export function createWholeNumberParser(flag: string): (texts: readonly string[]) => JsonValue {
  return (texts) => parseWholeNumber(flag, texts.at(-1) ?? '');
}

/** Parses a non-negative whole number. */
export function parseWholeNumber(what: string, value: string): number {
  if (!/^\d{1,9}$/.test(value))
    throw createUsageFailure(`${what}: expected a whole number, got ${JSON.stringify(value)}`);
  return Number(value);
}

/** Creates a parser for a number with a unit. */
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

/**
 * Creates a parser for the names of an enum; case does not matter, and hyphens count as
 * underscores.
 */
export function createEnumParser(
  flag: string,
  listEnumNames: readonly string[],
): (texts: readonly string[]) => JsonValue {
  return (texts) => {
    const given = texts.at(-1) ?? '';
    const name = given.toUpperCase().replaceAll('-', '_');
    if (listEnumNames.includes(name)) return name;
    throw createUsageFailure(
      `${flag}: expected one of ${listEnumNames.join(', ')}, got ${JSON.stringify(given)}${suggestSimilar(given, listEnumNames)}`,
    );
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

/** Parses `key=value` and `key-`. The value may contain equals signs. */
export function parsePairs(
  what: string,
  texts: readonly string[],
): readonly { readonly key: string; readonly value?: string }[] {
  return texts.map((given) => {
    const at = given.indexOf('=');
    if (at > 0) return { key: given.slice(0, at), value: given.slice(at + 1) };
    if (at < 0 && given.length > 1 && given.endsWith('-')) return { key: given.slice(0, -1) };
    throw createUsageFailure(
      `${what}: expected key=value, or key- to remove it, got ${JSON.stringify(given)}`,
    );
  });
}

/** Creates a parser for a duration such as `500ms` or `1h30m`. */
export const createDurationParser = (flag: string): SpecFlag['parse'] =>
  createUnitParser(flag, parseDuration, toDurationJson);
/** Returns the value names of an enum. */
export const names = (schema: {
  readonly values: readonly { readonly name: string }[];
}): readonly string[] => schema.values.map(({ name }) => name);
