import { errorFields, errorKindOf } from './errors.js';

/**
 * Values of a log line; messages are constant phrases. Never a secret, never a field called
 * `message`.
 */
export type LogFields = Readonly<Record<string, unknown>>;

/** Structured log, passed in. */
export interface Log {
  /** Someone must act. */
  error(message: string, fields?: LogFields): void;
  /** Degraded, handled. */
  warn(message: string, fields?: LogFields): void;
  /** What an operator wants on a timeline. */
  info(message: string, fields?: LogFields): void;
  /** Each decision. */
  debug(message: string, fields?: LogFields): void;
  /** A log whose lines all carry `fields`. */
  child(fields: LogFields): Log;
}

const nothing = (): void => undefined;

/** Drops everything: for tests and for libraries used without a log. */
export const silentLog: Log = {
  error: nothing,
  warn: nothing,
  info: nothing,
  debug: nothing,
  child: () => silentLog,
};

/**
 * Logs the failure of what is tried again by itself: an error. While the disk is full everything
 * that writes fails again and again, and the store has said why: then it is for debugging only.
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
