import type { LogFields } from '@cloudless/base';
import { redactText, toSafeFields } from './safe-fields.js';

/** Severity of a log line, the most severe first. */
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

/** Codes of ANSI terminals, ECMA-48 "SGR": a code that begins a style and the code that ends it. */
const STYLES = {
  bold: [1, 22],
  dim: [2, 22],
  red: [31, 39],
  green: [32, 39],
  yellow: [33, 39],
  cyan: [36, 39],
} as const;
type Style = keyof typeof STYLES;

const LEVEL_STYLES: Readonly<Record<LogLevel, Style>> = {
  error: 'red',
  warn: 'yellow',
  info: 'green',
  debug: 'dim',
};

/**
 * Formats a line for people: `10:20:30.400 INFO [rollout] rollout advanced workloadId=5f creates=1`,
 * with the time of day in UTC. The result is always a single line.
 * @param colors - Adds colours of ANSI terminals.
 */
export function toPrettyLine(
  { level, message, timeMs, fields }: LogEntry,
  { colors = false }: { readonly colors?: boolean } = {},
): string {
  const paint = (style: Style, text: string): string =>
    colors ? `\x1b[${STYLES[style][0]}m${text}\x1b[${STYLES[style][1]}m` : text;
  const { component, ...rest } = toSafeFields(fields);
  const time = new Date(timeMs).toISOString().slice(11, 23);
  const componentText =
    component === undefined ? [] : [paint('cyan', `[${toPlainText(component)}]`)];
  const fieldTexts = Object.entries(rest).map(
    ([key, value]) => `${paint('dim', `${key}=`)}${toPlainText(value)}`,
  );
  return [
    paint('dim', time),
    paint(LEVEL_STYLES[level], level.toUpperCase().padEnd(5)),
    ...componentText,
    paint('bold', redactText(message).replace(/[\x00-\x1f\x7f]/g, ' ')),
    ...fieldTexts,
  ].join(' ');
}

/**
 * Formats a line of {@link toJsonLine} with {@link toPrettyLine}.
 * @returns Undefined for a text that is no such line.
 */
export function jsonToPrettyLine(
  text: string,
  options?: { readonly colors?: boolean },
): string | undefined {
  if (!text.startsWith('{')) return undefined;
  try {
    const { time, level, message, ...fields } = JSON.parse(text) as Record<string, unknown>;
    const timeMs = Date.parse(String(time));
    if (!isLogLevel(level) || typeof message !== 'string' || Number.isNaN(timeMs)) return undefined;
    return toPrettyLine({ level, message, timeMs, fields }, options);
  } catch {
    return undefined;
  }
}

function isLogLevel(value: unknown): value is LogLevel {
  return typeof value === 'string' && Object.hasOwn(LEVEL_STYLES, value);
}

/** Formats a value for a terminal. Quotes text that is ambiguous or has control characters. */
function toPlainText(value: unknown): string {
  if (typeof value === 'string' && /^[\w./:@+-]+$/.test(value)) return value;
  return JSON.stringify(value).replace(
    /[\x7f-\x9f]/g,
    (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}
