/**
 * Runs a generator to its end without a pause.
 * @returns The result of the generator.
 */
export function runAtOnce<Result>(steps: Generator<void, Result>): Result {
  let next = steps.next();
  while (next.done !== true) next = steps.next();
  return next.value;
}

/**
 * Runs a generator, and lets other work run whenever the generator yields. The first slice runs
 * before this function returns.
 * @param pause - Resolves when the next slice may run. Its error ends the generator.
 * @returns The result of the generator.
 */
export async function runInSlices<Result>(
  steps: Generator<void, Result>,
  pause: () => Promise<void>,
): Promise<Result> {
  let next = steps.next();
  while (next.done !== true) {
    await pause();
    next = steps.next();
  }
  return next.value;
}
