import { errorFields, errorKindOf, hasErrorReason } from '../errors.js';

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
 * line when the program reports the cause itself, once: a full disk (kind `exhausted`), and the end
 * of the leadership, after which the next leader continues.
 */
export function logFailure(
  log: Log,
  message: string,
  reason: unknown,
  fields: LogFields = {},
): void {
  const all = { ...fields, ...errorFields(reason) };
  const isReported =
    errorKindOf(reason) === 'exhausted' || hasErrorReason(reason, 'LEADERSHIP_LOST');
  if (isReported) log.debug(message, all);
  else log.error(message, all);
}
