import type { JsonValue } from '@bufbuild/protobuf';
import { usageFailure } from '../failure.js';
import { durationJson } from '../manifest/read-scalar.js';
import { parseDuration } from '../quantity.js';
import type { Parsed } from '../quantity.js';
import { didYouMean } from '../suggest.js';

/** A flag that sets one field of a spec. */
export interface SpecFlag {
  readonly flag: string;
  readonly value: string;
  readonly description: string;
  /** Below `spec`, as in an update mask. */
  readonly path: string;
  readonly repeatable?: boolean;
  /**
   * The field's value in protobuf's JSON form.
   * @param before - What it is now, for the flags that add to it.
   */
  parse(texts: readonly string[], before: JsonValue | undefined): JsonValue;
  /** The value adds to what is there. */
  readonly adds?: boolean;
}

/** A flag without a value, which sets a field to true; with `--no-` before its name, to false. */
export interface SpecSwitch {
  readonly flag: string;
  readonly description: string;
  /** Below `spec`, as in an update mask. */
  readonly path: string;
}

/** The text itself. */
export const text = (texts: readonly string[]): JsonValue => texts.at(-1) ?? '';
/** True for a flag given once as `none`, which empties the list. */
export const isNone = (texts: readonly string[]): boolean =>
  texts.length === 1 && texts[0] === 'none';

/**
 * Reads the id of a user or group.
 * @param hint - Follows the error message.
 */
export function numericId(flag: string, given = '', hint = ''): JsonValue {
  if (/^\d{1,10}$/.test(given)) return given;
  throw usageFailure(`${flag}: expected a numeric id, got ${JSON.stringify(given)}${hint}`);
}

/** Every text that was given. */
export const list = (texts: readonly string[]): JsonValue => [...texts];

/** A whole number that is not negative. */
export function wholeNumber(flag: string): (texts: readonly string[]) => JsonValue {
  return (texts) => parseWholeNumber(flag, texts.at(-1) ?? '');
}

/** Reads a whole number that is not negative. */
export function parseWholeNumber(what: string, value: string): number {
  if (!/^\d{1,9}$/.test(value))
    throw usageFailure(`${what}: expected a whole number, got ${JSON.stringify(value)}`);
  return Number(value);
}

/** A number with a unit. */
export function unit(
  flag: string,
  parse: (text: string) => Parsed<bigint>,
  to: (value: bigint) => JsonValue,
): (texts: readonly string[]) => JsonValue {
  return (texts) => {
    const parsed = parse(texts.at(-1) ?? '');
    if ('problem' in parsed) throw usageFailure(`${flag}: ${parsed.problem}`);
    return to(parsed.value);
  };
}

/** One of the names of an enum, in any case, with hyphens or underscores. */
export function word(
  flag: string,
  names: readonly string[],
): (texts: readonly string[]) => JsonValue {
  return (texts) => {
    const given = texts.at(-1) ?? '';
    const name = given.toUpperCase().replaceAll('-', '_');
    if (names.includes(name)) return name;
    throw usageFailure(
      `${flag}: expected one of ${names.join(', ')}, got ${JSON.stringify(given)}${didYouMean(given, names)}`,
    );
  };
}

/** `key=value` sets, `key-` removes. */
export function pairs(
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

/** Reads `key=value` and `key-`; the value may hold further equals signs. */
export function parsePairs(
  what: string,
  texts: readonly string[],
): readonly { readonly key: string; readonly value?: string }[] {
  return texts.map((given) => {
    const at = given.indexOf('=');
    if (at > 0) return { key: given.slice(0, at), value: given.slice(at + 1) };
    if (at < 0 && given.length > 1 && given.endsWith('-')) return { key: given.slice(0, -1) };
    throw usageFailure(
      `${what}: expected key=value, or key- to remove it, got ${JSON.stringify(given)}`,
    );
  });
}

/** A duration, as `500ms` or `1h30m`. */
export const duration = (flag: string): SpecFlag['parse'] =>
  unit(flag, parseDuration, durationJson);
/** The names of an enum. */
export const names = (schema: {
  readonly values: readonly { readonly name: string }[];
}): readonly string[] => schema.values.map(({ name }) => name);
