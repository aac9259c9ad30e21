import { InvalidInputError, showValue, type Violation } from './errors.js';

/** A parsed value, or a description of the problem for people. */
export type ParsedValue<Value> = { readonly value: Value } | { readonly problem: string };

/** Parser and default value of one setting. */
export interface ConfigField<Value> {
  /** Never throws. */
  readonly parse: (raw: unknown) => ParsedValue<Value>;
  /** Default: the value when no layer sets the setting. */
  readonly fallback: Value;
}

/** Settings from one source. Later layers override earlier ones. */
export interface ConfigLayer {
  /** Name of the source in messages: `cloudless.yaml`, `environment`, `command line`. */
  readonly source: string;
  /** Raw values by key. `undefined` sets nothing. */
  readonly values: Readonly<Record<string, unknown>>;
  /** Returns the name of a setting in this source, for messages. Default: the key itself. */
  readonly nameOf?: (key: string) => string;
}

/** One field for each key of the result. */
export type ConfigFields<Config> = { readonly [Key in keyof Config]: ConfigField<Config[Key]> };

/**
 * Merges the settings of a program: the defaults first, then each layer.
 * @throws {@link InvalidInputError} with every unknown key and invalid value and its source, also
 *   of values that a later layer overrides.
 */
export function parseConfig<Config extends object>(
  fields: ConfigFields<Config>,
  layers: readonly ConfigLayer[],
): Config {
  const problems: Violation[] = [];
  const keys = Object.keys(fields) as (keyof Config & string)[];
  const config = Object.fromEntries(keys.map((key) => [key, fields[key].fallback])) as Config;
  for (const { source, values, nameOf = (key: string): string => key } of layers) {
    for (const [key, raw] of Object.entries(values)) {
      if (raw === undefined) continue;
      const declaredKey = keys.find((name) => name === key);
      if (declaredKey === undefined) {
        problems.push({
          field: `${source}: ${nameOf(key)}`,
          message: `is not a setting; the settings are ${keys.map(nameOf).join(', ')}`,
        });
        continue;
      }
      const parsed = fields[declaredKey].parse(raw);
      if ('problem' in parsed)
        problems.push({ field: `${source}: ${nameOf(key)}`, message: parsed.problem });
      else config[declaredKey] = parsed.value;
    }
  }
  if (problems.length > 0) throw new InvalidInputError(problems);
  return config;
}

/**
 * Accepts any text, or only text that matches `form.pattern`.
 * @param form - `expected` describes the pattern in messages: `must be <expected>`.
 */
export function textField<Fallback extends string | undefined>(
  fallback: Fallback,
  form?: { readonly pattern: RegExp; readonly expected: string },
): ConfigField<string | Fallback> {
  return {
    fallback,
    parse: (raw) => {
      if (typeof raw !== 'string') return { problem: 'must be text' };
      if (form !== undefined && raw.search(form.pattern) < 0)
        return { problem: `"${raw}" must be ${form.expected}` };
      return { value: raw };
    },
  };
}

/** Accepts a whole number from `min` to `max`, both included, as a number or as digits. */
export function wholeNumberField(fallback: number, min: number, max: number): ConfigField<number> {
  return {
    fallback,
    parse: (raw) => {
      const value = typeof raw === 'string' && /^-?\d+$/.test(raw.trim()) ? Number(raw) : raw;
      if (typeof value !== 'number' || !Number.isInteger(value) || value < min || value > max) {
        return { problem: `"${showValue(raw)}" must be a whole number from ${min} to ${max}` };
      }
      return { value };
    },
  };
}

/** Accepts one of `words`, in the same case. */
export function oneOfField<Word extends string>(
  fallback: Word,
  words: readonly Word[],
): ConfigField<Word> {
  return {
    fallback,
    parse: (raw) => {
      const word = words.find((candidate) => candidate === raw);
      if (word === undefined)
        return { problem: `"${showValue(raw)}" must be one of ${words.join(', ')}` };
      return { value: word };
    },
  };
}

/** Accepts `true` or `false`, also as text. */
export function switchField(fallback: boolean): ConfigField<boolean> {
  return {
    fallback,
    parse: (raw) => {
      if (raw === true || raw === 'true') return { value: true };
      if (raw === false || raw === 'false') return { value: false };
      return { problem: `"${showValue(raw)}" must be true or false` };
    },
  };
}

const DURATION_UNITS: Readonly<Record<string, number>> = {
  ms: 1,
  s: 1_000,
  m: 60_000,
  h: 3_600_000,
};

/** Accepts a text such as `250ms`, `3s` or `1m30s`; the value is in milliseconds. */
export function durationField(
  fallbackMs: number,
  minMs: number,
  maxMs: number,
): ConfigField<number> {
  return {
    fallback: fallbackMs,
    parse: (raw) => {
      const parts =
        typeof raw === 'string' && /^(\d+(ms|s|m|h))+$/.test(raw)
          ? [...raw.matchAll(/(\d+)(ms|s|m|h)/g)]
          : [];
      const value = parts.reduce(
        (sum, [, count, unit]) => sum + Number(count) * (DURATION_UNITS[unit ?? ''] ?? 0),
        0,
      );
      if (parts.length === 0 || value < minMs || value > maxMs) {
        return {
          problem: `"${showValue(raw)}" must be a duration such as 250ms, 3s or 1m30s, from ${minMs} ms to ${maxMs} ms`,
        };
      }
      return { value };
    },
  };
}

const SIZE_UNITS: Readonly<Record<string, number>> = {
  '': 1,
  Ki: 1_024,
  Mi: 1_024 ** 2,
  Gi: 1_024 ** 3,
};

/** Accepts a number or a text such as `65536`, `512Ki` or `64Mi`; the value is in bytes. */
export function sizeField(
  fallbackBytes: number,
  minBytes: number,
  maxBytes: number,
): ConfigField<number> {
  return {
    fallback: fallbackBytes,
    parse: (raw) => {
      const [, count = '', unit = ''] =
        /^(\d{1,15})(Ki|Mi|Gi)?$/.exec(
          typeof raw === 'number' || typeof raw === 'string' ? `${raw}` : '',
        ) ?? [];
      const value = count === '' ? Number.NaN : Number(count) * (SIZE_UNITS[unit] ?? Number.NaN);
      if (!(value >= minBytes && value <= maxBytes)) {
        return {
          problem: `"${showValue(raw)}" must be a size such as 512Ki or 64Mi, from ${minBytes} to ${maxBytes} bytes`,
        };
      }
      return { value };
    },
  };
}
