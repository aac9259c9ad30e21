import type { LogFields } from '@cloudless/base';
import { redactText, toSafeFields } from './safe-fields.js';

export type LogLevel = 'error' | 'warn' | 'info' | 'debug';

/** One log line before formatting. */
export interface LogEntry {
  readonly level: LogLevel;
  readonly message: string;
  /** Milliseconds since the Unix epoch. */
  readonly timeMs: number;
  readonly fields: LogFields;
}

/** Names that the JSON line itself uses. A field with such a name gets a trailing underscore. */
const RESERVED_NAMES = ['time', 'level', 'message'];

/**
 * Formats a line as one JSON object: `time` (RFC 3339, UTC), `level`, `message`, then the fields.
 */
export function toJsonLine({ level, message, timeMs, fields }: LogEntry): string {
  const ownFields = Object.entries(toSafeFields(fields)).map(([key, value]) => [
    RESERVED_NAMES.includes(key) ? `${key}_` : key,
    value,
  ]);
  return JSON.stringify({
    time: new Date(timeMs).toISOString(),
    level,
    message: redactText(message),
    ...Object.fromEntries(ownFields),
  });
}

/**
 * Formats a line for terminals: `10:20:30.400 INFO [rollout] rollout advanced workloadId=5f
 * creates=1`. The result is always a single line.
 */
export function toPrettyLine({ level, message, timeMs, fields }: LogEntry): string {
  const { component, ...rest } = toSafeFields(fields);
  const time = new Date(timeMs).toISOString().slice(11, 23);
  const componentText = component === undefined ? [] : [`[${toPlainText(component)}]`];
  const fieldTexts = Object.entries(rest).map(([key, value]) => `${key}=${toPlainText(value)}`);
  return [
    time,
    level.toUpperCase().padEnd(5),
    ...componentText,
    redactText(message).replace(/[\x00-\x1f\x7f]/g, ' '),
    ...fieldTexts,
  ].join(' ');
}

/** Formats a value for a terminal. Quotes text that is ambiguous or has control characters. */
function toPlainText(value: unknown): string {
  if (typeof value === 'string' && /^[\w./:@+-]+$/.test(value)) return value;
  return JSON.stringify(value).replace(
    /[\x7f-\x9f]/g,
    (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}
