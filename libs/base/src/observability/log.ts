import { errorFields, errorKindOf } from '../errors.js';

/**
 * Values of a log line. Messages are constant phrases. Never put a secret into a field, and never
 * name a field `message`.
 */
export type LogFields = Readonly<Record<string, unknown>>;

/** Structured log. */
export interface Log {
  /** For problems on which an operator must act. */
  error(message: string, fields?: LogFields): void;
  /** For problems that the program handles, with degraded service. */
  warn(message: string, fields?: LogFields): void;
  /** For events that an operator expects on a timeline. */
  info(message: string, fields?: LogFields): void;
  /** For single decisions. */
  debug(message: string, fields?: LogFields): void;
  /** Returns a log that adds `fields` to every line. */
  child(fields: LogFields): Log;
}

const doNothing = (): void => undefined;

/** Drops all lines. For tests, and for libraries that are used without a log. */
export const silentLog: Log = {
  error: doNothing,
  warn: doNothing,
  info: doNothing,
  debug: doNothing,
  child: () => silentLog,
};

/**
 * Logs the failure of an operation that is retried automatically: as an error line, or as a debug
 * line when its kind is `exhausted`. A full disk makes every write fail with this kind again and
 * again, and the store already reports the full disk.
 */
export function logFailure(
  log: Log,
  message: string,
  reason: unknown,
  fields: LogFields = {},
): void {
  const all = { ...fields, ...errorFields(reason) };
  if (errorKindOf(reason) === 'exhausted') log.debug(message, all);
  else log.error(message, all);
}
