import { redactText, toSafeFields } from './safe-fields.js';
import type { LogFields } from '@cloudless/base';

/** How much a line matters; `error` most. */
export type LogLevel = 'error' | 'warn' | 'info' | 'debug';

/** One line before it is text. */
export interface LogLine {
  readonly level: LogLevel;
  readonly message: string;
  /** Milliseconds since the Unix epoch. */
  readonly timeMs: number;
  readonly fields: LogFields;
}

/**
 * Names a field may not take in JSON, since the line itself has them; such a field gets an
 * underscore at its end.
 */
const RESERVED = ['time', 'level', 'message'];

/** One JSON object: `time` (RFC 3339, UTC), `level`, `message`, then the fields. */
export function toJsonLine({ level, message, timeMs, fields }: LogLine): string {
  const own = Object.entries(toSafeFields(fields)).map(([key, value]) => [
    RESERVED.includes(key) ? `${key}_` : key,
    value,
  ]);
  return JSON.stringify({
    time: new Date(timeMs).toISOString(),
    level,
    message: redactText(message),
    ...Object.fromEntries(own),
  });
}

/**
 * For people: `10:20:30.400 INFO [rollout] rollout advanced workloadId=5f creates=1`. Never more
 * than one line of text.
 */
export function toPrettyLine({ level, message, timeMs, fields }: LogLine): string {
  const { component, ...rest } = toSafeFields(fields);
  const time = new Date(timeMs).toISOString().slice(11, 23);
  const head = component === undefined ? [] : [`[${plain(component)}]`];
  const tail = Object.entries(rest).map(([key, value]) => `${key}=${plain(value)}`);
  return [
    time,
    level.toUpperCase().padEnd(5),
    ...head,
    redactText(message).replace(/[\x00-\x1f\x7f]/g, ' '),
    ...tail,
  ].join(' ');
}

/** Texts that could be mistaken for something else, or move a terminal's cursor, are quoted. */
function plain(value: unknown): string {
  if (typeof value === 'string' && /^[\w./:@+-]+$/.test(value)) return value;
  return JSON.stringify(value).replace(
    /[\x7f-\x9f]/g,
    (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}
