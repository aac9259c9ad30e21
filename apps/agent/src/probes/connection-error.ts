import { CloudlessError, errorCodeOf } from '@cloudless/base';

/** Messages for people, by error code of the operating system. */
const MESSAGES: Readonly<Record<string, string>> = {
  ECONNREFUSED: 'connection refused',
  ECONNRESET: 'connection closed without an answer',
  EPIPE: 'connection closed without an answer',
  ETIMEDOUT: 'connection timed out',
  EHOSTUNREACH: 'host not reached',
  ENETUNREACH: 'network not reached',
};

/**
 * Converts a failed connection to an error of kind `unavailable`. The message follows from the
 * error code, so that repeated failures with the same code have the same message.
 */
export function toConnectionError(cause: unknown): CloudlessError {
  const code = errorCodeOf(cause) ?? '';
  const message =
    MESSAGES[code] ??
    (code.startsWith('HPE_')
      ? 'the answer is not HTTP/1.1'
      : `connection failed (${code || 'no code'})`);
  return new CloudlessError('unavailable', message, { cause });
}
