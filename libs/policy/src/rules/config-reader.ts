import { toSnakeCase } from '@cloudless/base';
import { LIMITS, type IdRange } from '../model.js';
import type { Report } from './rule-definition.js';

/** Largest user or group id. */
const MAX_ID = 4_294_967_294;

/** An object of a policy that comes from outside. */
export type RawObject = Readonly<Record<string, unknown>>;

/** Returns true for an object that is neither null nor a list. */
export function isRawObject(value: unknown): value is RawObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** A field that is set, or nothing when the field is absent or has a problem. */
type Optional<Key extends string, Value> = { readonly [Name in Key]?: Value };

/**
 * Reads the fields of an object from outside. Each method reports a value of a wrong type with its
 * path, and returns the object part with the field, or an empty part. Call `finish` at the end.
 */
export class ConfigReader {
  readonly #known = new Set<string>();

  constructor(
    private readonly raw: RawObject,
    /** Path of the object, such as `rules[0].config`. */
    private readonly path: string,
    private readonly report: Report,
  ) {}

  /** Reads a list of texts without duplicates, of at most {@link LIMITS.items} items. */
  texts<Key extends string>(
    key: Key,
    { required = false, allowEmpty = false, isAllowed, expected = 'texts' }: TextsOptions = {},
  ): Optional<Key, readonly string[]> {
    const value = this.take(key, required);
    if (value === undefined) return {};
    const fits =
      Array.isArray(value) && value.length <= LIMITS.items && (allowEmpty || value.length > 0);
    if (!fits) {
      const size = allowEmpty ? `at most ${LIMITS.items}` : `1 to ${LIMITS.items}`;
      return this.refuse(key, `must be a list of ${size} ${expected}`);
    }
    for (const [index, item] of value.entries()) {
      const isFine = isText(item) && (isAllowed === undefined || isAllowed(item));
      if (!isFine)
        return this.refuse(`${key}[${index}]`, `${show(item)} is not allowed; use ${expected}`);
    }
    return toPart(key, value);
  }

  /** Reads a text that is not empty. */
  text<Key extends string>(
    key: Key,
    {
      required = false,
      maxBytes = LIMITS.textLength,
    }: { readonly required?: boolean; readonly maxBytes?: number } = {},
  ): Optional<Key, string> {
    const value = this.take(key, required);
    if (value === undefined) return {};
    if (typeof value !== 'string' || value.trim() === '')
      return this.refuse(key, 'must be a text that is not empty');
    const size = utf8Length(value);
    if (size > maxBytes)
      return this.refuse(key, `has ${size} bytes; at most ${maxBytes} are allowed`);
    return toPart(key, value);
  }

  /** Reads true or false. */
  switch<Key extends string>(key: Key): Optional<Key, boolean> {
    const value = this.take(key, false);
    if (value === undefined) return {};
    if (typeof value !== 'boolean') return this.refuse(key, `${show(value)} is not true or false`);
    return toPart(key, value);
  }

  /** Reads a whole number from 1. */
  amount<Key extends string>(key: Key): Optional<Key, number> {
    const value = this.take(key, false);
    if (value === undefined) return {};
    if (!isWhole(value, 1, Number.MAX_SAFE_INTEGER))
      return this.refuse(key, `${show(value)} is not a whole number from 1 to 2^53 - 1`);
    return toPart(key, value);
  }

  /** Reads a range of ids, `{ min, max }`. */
  ids<Key extends string>(key: Key): Optional<Key, IdRange> {
    const value = this.take(key, false);
    if (value === undefined) return {};
    const { min, max, ...rest } = isRawObject(value) ? value : {};
    const fits = isWhole(min, 0, MAX_ID) && isWhole(max, min, MAX_ID);
    if (!fits || Object.keys(rest).length > 0)
      return this.refuse(key, `must be { min, max } with 0 <= min <= max <= ${MAX_ID}`);
    return toPart(key, { min, max });
  }

  /** Reads a map from labels to lists of values. */
  labels<Key extends string>(key: Key): Optional<Key, Readonly<Record<string, readonly string[]>>> {
    const value = this.take(key, false);
    if (value === undefined) return {};
    const fits =
      isRawObject(value) &&
      isWhole(Object.keys(value).length, 1, LIMITS.items) &&
      Object.values(value).every(
        (list) =>
          Array.isArray(list) &&
          list.length <= LIMITS.items &&
          list.every((item) => typeof item === 'string'),
      );
    if (!fits)
      return this.refuse(
        key,
        `must map 1 to ${LIMITS.items} labels to lists of at most ${LIMITS.items} values`,
      );
    return toPart(key, value);
  }

  /** Reports a configuration that says nothing. */
  requireOneOf(...keys: readonly string[]): void {
    if (keys.some((key) => this.raw[key] !== undefined)) return;
    const names = keys.map(toSnakeCase).join(', ');
    this.report({ field: this.path, message: `needs at least one of ${names}` });
  }

  /** Reports every field that was not read. */
  finish(): void {
    for (const key of Object.keys(this.raw)) {
      if (this.#known.has(key)) continue;
      const names = [...this.#known].map(toSnakeCase).join(', ');
      const allowed = names === '' ? 'no fields are allowed' : `allowed are ${names}`;
      this.report({
        field: `${this.path}.${toSnakeCase(key)}`,
        message: `unknown field; ${allowed}`,
      });
    }
  }

  private take(key: string, required: boolean): unknown {
    this.#known.add(key);
    const value = Object.hasOwn(this.raw, key) ? this.raw[key] : undefined;
    if (value === undefined && required) this.refuse(key, 'is required');
    return value;
  }

  private refuse(key: string, message: string): object {
    this.report({ field: `${this.path}.${toSnakeCase(key)}`, message });
    return {};
  }
}

/** Returns an object part with one field, whose type the caller has checked. */
function toPart<Key extends string, Value>(key: Key, value: unknown): Optional<Key, Value> {
  return { [key]: value } as unknown as Optional<Key, Value>;
}

/** Options of {@link ConfigReader.texts}. */
export interface TextsOptions {
  readonly required?: boolean;
  /** Accepts a list without items. */
  readonly allowEmpty?: boolean;
  readonly isAllowed?: (text: string) => boolean;
  /** Expected items, for the message: `names of capabilities such as NET_ADMIN`. */
  readonly expected?: string;
}

/** Returns true for a whole number in a range. */
export function isWhole(value: unknown, min: number, max: number): value is number {
  return Number.isSafeInteger(value) && (value as number) >= min && (value as number) <= max;
}

/** Returns the length of a text in UTF-8, bytes. */
export function utf8Length(text: string): number {
  let bytes = 0;
  for (const symbol of text) {
    const code = symbol.codePointAt(0) ?? 0;
    bytes += code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x1_00_00 ? 3 : 4;
  }
  return bytes;
}

function isText(value: unknown): value is string {
  return typeof value === 'string' && value !== '' && value.length <= LIMITS.textLength;
}

/** Longest value in a message, characters. */
const SHOWN = 80;

/** Formats a value of a policy or spec for a message. */
export function show(value: unknown): string {
  if (typeof value === 'bigint') return String(value);
  const text = JSON.stringify(value) ?? String(value);
  return text.length <= SHOWN ? text : `${text.slice(0, SHOWN)}…`;
}
