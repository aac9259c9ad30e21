import { CloudlessError, errorCodeOf, errorMessageOf, type ErrorKind } from '@cloudless/base';

const KINDS: Readonly<Record<string, ErrorKind>> = {
  ENOENT: 'notFound',
  EEXIST: 'exists',
  ENOSPC: 'exhausted',
  EDQUOT: 'exhausted',
};

/**
 * Returns an error of the operating system as a {@link CloudlessError}; other errors as they are.
 * @param problem - Begins the message: `/etc/key cannot be read`.
 */
export function toFileError(reason: unknown, problem: string): unknown {
  const code = errorCodeOf(reason);
  if (reason instanceof CloudlessError || code === undefined) return reason;
  return new CloudlessError(
    KINDS[code] ?? 'precondition',
    `${problem}: ${errorMessageOf(reason)}`,
    { cause: reason },
  );
}

/** Returns an error of kind `precondition`, for the caller to throw. */
export function refuse(message: string): CloudlessError {
  return new CloudlessError('precondition', message);
}
