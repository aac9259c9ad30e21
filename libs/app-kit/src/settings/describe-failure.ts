import { InvalidInputError, errorFields, errorKindOf, errorMessageOf } from '@cloudless/base';

/** Exit code of a failure that is not bad usage. */
export const EXIT_FAILURE = 1;
/** Exit code of bad usage or settings. */
export const EXIT_USAGE = 2;

/**
 * Returns the text for standard error and the exit code when a program cannot start. The text has
 * one line for each problem, and an indented line for the first cause when the text does not
 * contain it.
 * @param program - Name of the program, with which each line begins.
 */
export function describeFailure(
  program: string,
  reason: unknown,
): { readonly text: string; readonly exitCode: number } {
  const problems =
    reason instanceof InvalidInputError
      ? reason.violations.map(({ field, message }) => `${field}: ${message}`)
      : [errorMessageOf(reason)];
  const cause = errorFields(reason)
    .causes?.at(-1)
    ?.replace(/^\w*Error: /, '');
  const isNews = cause !== undefined && !problems.some((problem) => problem.includes(cause));
  return {
    text: [
      ...problems.map((problem) => `${program}: ${problem}\n`),
      ...(isNews ? [`  cause: ${cause}\n`] : []),
    ].join(''),
    exitCode: errorKindOf(reason) === 'invalid' ? EXIT_USAGE : EXIT_FAILURE,
  };
}
