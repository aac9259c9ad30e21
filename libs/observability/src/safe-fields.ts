import { errorFields, type LogFields } from '@cloudless/base';

/** Replacement of a secret. */
export const REDACTED = '[redacted]';

/** Keys whose values are secrets, except keys that match {@link HARMLESS_KEY}. */
const SECRET_KEY =
  /token|secret|passw(or)?d|passphrase|authorization|cookie|credential|private_?-?key|api_?-?key/i;
/** Keys of ids, names and counts, which are no secrets even when they name a secret. */
const HARMLESS_KEY = /(id|ids|name|names|count|version|kind)$/i;

/**
 * Secrets that are recognised by their form: PEM private keys, join tokens
 * (`cl1.<id>.<random>.<hash>`), bearer tokens.
 */
const SECRET_TEXT =
  /-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(-----END [A-Z ]*PRIVATE KEY-----|$)|\bclu?1\.[\w.-]+|\bBearer\s+[\w.~+/=-]+/g;

/**
 * Limits of object depth, text length in characters and list length. Values beyond are truncated.
 */
const MAX_DEPTH = 6;
const MAX_TEXT = 8_192;
const MAX_ITEMS = 100;

/**
 * Converts fields of a log line to plain JSON values without secrets. Big integers become text,
 * errors keep their causes, cycles and long values are truncated.
 */
export function toSafeFields(fields: LogFields): Record<string, unknown> {
  return toSafeObject(fields, []);
}

/** Truncates a text and replaces the secrets in it that {@link SECRET_TEXT} matches. */
export function redactText(text: string): string {
  const shortened =
    text.length > MAX_TEXT ? `${text.slice(0, MAX_TEXT)}... (${text.length} characters)` : text;
  return shortened.replace(SECRET_TEXT, REDACTED);
}

function toSafeObject(value: object, parents: readonly object[]): Record<string, unknown> {
  const entries = Object.entries(value).flatMap(([key, item]): [string, unknown][] => {
    if (item === undefined || typeof item === 'function') return [];
    return [
      [
        key,
        SECRET_KEY.test(key) && !HARMLESS_KEY.test(key)
          ? REDACTED
          : toSafeValue(item, [...parents, value]),
      ],
    ];
  });
  return Object.fromEntries(entries);
}

function toSafeValue(value: unknown, parents: readonly object[]): unknown {
  if (typeof value === 'string') return redactText(value);
  if (typeof value === 'bigint' || typeof value === 'symbol') return String(value);
  if (typeof value === 'number' && !Number.isFinite(value)) return String(value);
  if (typeof value !== 'object' || value === null) return value;
  if (parents.includes(value)) return '[cycle]';
  if (parents.length >= MAX_DEPTH) return '[deep]';
  if (value instanceof Error) return toSafeObject(errorFields(value), parents);
  if (value instanceof Date)
    return Number.isNaN(value.getTime()) ? 'Invalid Date' : value.toISOString();
  if (ArrayBuffer.isView(value)) return `[${value.byteLength} bytes]`;
  if (value instanceof Map)
    return toSafeValue(
      Object.fromEntries([...value].map(([key, item]) => [String(key), item])),
      parents,
    );
  if (value instanceof Set) return toSafeValue([...value], parents);
  if (!Array.isArray(value)) return toSafeObject(value, parents);
  const items = value
    .slice(0, MAX_ITEMS)
    .map((item) => toSafeValue(item, [...parents, value]) ?? null);
  return value.length > MAX_ITEMS ? [...items, `[${value.length - MAX_ITEMS} more]`] : items;
}
