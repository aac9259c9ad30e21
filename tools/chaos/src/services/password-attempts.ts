/** One connection of a client that uses a password. */
export interface Attempt {
  /** First part of the password: `v1`, `v2`, … */
  readonly version: string;
  /** Undefined: the query was answered. */
  readonly error: string | undefined;
}

/** Reads the lines `<version> <answer or error>`. A line that is not complete is left out. */
export function parseAttempts(text: string): readonly Attempt[] {
  return text
    .split('\n')
    .slice(0, -1)
    .map((line) => {
      const [version = '', ...rest] = line.trim().split(' ');
      const answer = rest.join(' ');
      return { version, error: answer === 'answered' ? undefined : answer };
    });
}

/**
 * Counts the attempts that failed.
 * @param allowed - Errors that may happen.
 * @throws Error with the first error of another kind.
 */
export function judgeAttempts(
  attempts: readonly Attempt[],
  allowed: RegExp,
): { readonly failed: number } {
  const errors = attempts.flatMap(({ error }) => (error === undefined ? [] : [error]));
  const other = errors.find((error) => !allowed.test(error));
  if (other !== undefined) throw new Error(`an attempt failed: ${other || '(no output)'}`);
  return { failed: errors.length };
}
