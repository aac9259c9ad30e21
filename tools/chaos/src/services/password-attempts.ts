/** One connection of a client that uses a password. */
export interface PasswordAttempt {
  /** Time of the wall clock at which the attempt began, milliseconds. */
  readonly atMs: number;
  /** First part of the password: `v1`, `v2`, … */
  readonly version: string;
  /** Undefined: the query was answered. */
  readonly error: string | undefined;
}

/** What became of the attempts of a change. */
export interface AttemptCounts {
  readonly attempts: number;
  /** Attempts that the server refused because of the password. */
  readonly refused: number;
  /** Attempts that failed for another reason. */
  readonly failed: number;
  /** Time from the first to the last attempt without an answer, milliseconds; 0: at most one. */
  readonly failingMs: number;
}

/** Error of PostgreSQL for a wrong password. */
export const REFUSED = /password authentication failed/;

/**
 * Reads the lines `<milliseconds> <version> <answer or error>`. A line that is not complete is left
 * out.
 */
export function parseAttempts(text: string): readonly PasswordAttempt[] {
  return text
    .split('\n')
    .slice(0, -1)
    .map((line) => {
      const [atMs = '', version = '', ...rest] = line.trim().split(' ');
      const answer = rest.join(' ');
      return { atMs: Number(atMs), version, error: answer === 'answered' ? undefined : answer };
    });
}

/**
 * Counts attempts by what became of them.
 * @param allowed - Errors that may happen besides the refusal of a password; absent: none.
 * @throws Error with the first error of another kind.
 */
export function judgeAttempts(
  attempts: readonly PasswordAttempt[],
  allowed?: RegExp,
): AttemptCounts {
  const unanswered = attempts.flatMap(({ atMs, error }) =>
    error === undefined ? [] : [{ atMs, error }],
  );
  const failed = unanswered.filter(({ error }) => !REFUSED.test(error));
  const other = failed.find(({ error }) => allowed?.test(error) !== true);
  if (other !== undefined) throw new Error(`an attempt failed: ${other.error || '(no output)'}`);
  const times = unanswered.map(({ atMs }) => atMs);
  return {
    attempts: attempts.length,
    refused: unanswered.length - failed.length,
    failed: failed.length,
    failingMs: times.length === 0 ? 0 : Math.max(...times) - Math.min(...times),
  };
}
