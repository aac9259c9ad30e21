import { InvalidInputError, errorKindOf, errorMessageOf } from '@cloudless/base';

/** Something went wrong. */
export const EXIT_FAILURE = 1;
/** Bad usage or settings. */
export const EXIT_USAGE = 2;

/**
 * What a program says on standard error when it cannot start, a line for each problem, and its exit
 * code.
 */
export function describeFailure(
  program: string,
  reason: unknown,
): { readonly text: string; readonly exitCode: number } {
  const problems =
    reason instanceof InvalidInputError
      ? reason.violations.map(({ field, message }) => `${field}: ${message}`)
      : [errorMessageOf(reason)];
  return {
    text: problems.map((problem) => `${program}: ${problem}\n`).join(''),
    exitCode: errorKindOf(reason) === 'invalid' ? EXIT_USAGE : EXIT_FAILURE,
  };
}
