import { toSnakeCase, type Violation } from '@cloudless/base';
import { LIMITS, type IdRange } from '../model.js';

/** Largest user or group id. */
const MAX_ID = 4_294_967_294;

/** Receives problems of a policy. */
export type Report = (violation: Violation) => void;

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
    { required = false, maxBytes = LIMITS.textLength, findProblem }: TextOptions = {},
  ): Optional<Key, string> {
    const value = this.take(key, required);
    if (value === undefined) return {};
    if (typeof value !== 'string' || value.trim() === '')
      return this.refuse(key, 'must be a text that is not empty');
    const size = utf8Length(value);
    if (size > maxBytes)
      return this.refuse(key, `has ${size} bytes; at most ${maxBytes} are allowed`);
    const problem = findProblem?.(value);
    return problem === undefined ? toPart(key, value) : this.refuse(key, problem);
  }

  /** Reads a text that must be one of `choices`. */
  choice<Key extends string, Choice extends string>(
    key: Key,
    choices: readonly Choice[],
  ): Optional<Key, Choice> {
    const value = this.take(key, false);
    if (value === undefined) return {};
    if (!(choices as readonly unknown[]).includes(value))
      return this.refuse(key, `${show(value)} is not allowed; use ${choices.join(', ')}`);
    return toPart(key, value);
  }

  /**
   * Reads a list of objects.
   * @param read - Reads one object. Its reader is finished here.
   */
  objects<Key extends string, Item>(
    key: Key,
    read: (reader: ConfigReader) => Item,
    { required = false, allowEmpty = false, max, expected }: ObjectsOptions,
  ): Optional<Key, readonly Item[]> {
    const value = this.take(key, required);
    if (value === undefined) return {};
    if (!Array.isArray(value) || value.length > max || (!allowEmpty && value.length === 0)) {
      const size = allowEmpty ? `at most ${max}` : `1 to ${max}`;
      return this.refuse(key, `must be a list of ${size} ${expected}`);
    }
    const items: Item[] = [];
    for (const [index, item] of value.entries()) {
      const path = `${key}[${index}]`;
      if (!isRawObject(item)) return this.refuse(path, `${show(item)} is not an object`);
      const reader = new ConfigReader(item, `${this.path}.${toSnakeCase(path)}`, this.report);
      items.push(read(reader));
      reader.finish();
    }
    return toPart(key, items);
  }

  /** Reads true or false. */
  switch<Key extends string>(key: Key): Optional<Key, boolean> {
    const value = this.take(key, false);
    if (value === undefined) return {};
    if (typeof value !== 'boolean') return this.refuse(key, `${show(value)} is not true or false`);
    return toPart(key, value);
  }

  /** Reads a whole number, by default from 1. */
  amount<Key extends string>(
    key: Key,
    { required = false, min = 1, max = Number.MAX_SAFE_INTEGER }: AmountOptions = {},
  ): Optional<Key, number> {
    const value = this.take(key, required);
    if (value === undefined) return {};
    const highest = max === Number.MAX_SAFE_INTEGER ? '2^53 - 1' : String(max);
    if (!isWhole(value, min, max))
      return this.refuse(key, `${show(value)} is not a whole number from ${min} to ${highest}`);
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

  /** Reports an object in which none of these fields is set. */
  requireOneOf(...keys: readonly string[]): void {
    if (keys.some((key) => this.raw[key] !== undefined)) return;
    const names = keys.map(toSnakeCase).join(', ');
    this.report({ field: this.path, message: `needs at least one of ${names}` });
  }

  /** Reports an object in which none, or more than one, of these fields is set. */
  requireExactlyOne(...keys: readonly string[]): void {
    if (keys.filter((key) => this.raw[key] !== undefined).length === 1) return;
    const names = keys.map(toSnakeCase).join(', ');
    this.report({ field: this.path, message: `needs exactly one of ${names}` });
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

/** Options of {@link ConfigReader.text}. */
export interface TextOptions {
  readonly required?: boolean;
  /** Longest text in UTF-8, bytes. Default: {@link LIMITS.textLength}. */
  readonly maxBytes?: number;
  /** Returns what is wrong with a text, or undefined. */
  readonly findProblem?: (text: string) => string | undefined;
}

/** Options of {@link ConfigReader.objects}. */
export interface ObjectsOptions {
  readonly required?: boolean;
  /** Accepts a list without items. */
  readonly allowEmpty?: boolean;
  /** Largest number of items. */
  readonly max: number;
  /** Expected items, for the message: `destinations`. */
  readonly expected: string;
}

/** Options of {@link ConfigReader.amount}. */
export interface AmountOptions {
  readonly required?: boolean;
  readonly min?: number;
  readonly max?: number;
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
