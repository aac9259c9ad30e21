import { sleep, type Clock } from '@cloudless/base';

/**
 * Intervals of the polls in the first second and afterwards. Most processes appear at once, and
 * each poll reads the whole process table of the machine.
 */
const INTERVAL_MS = { first: 5, later: 100 };
const FIRST_MS = 1_000;

/**
 * Polls until `find` returns a value.
 * @param isOver - Called before each call of `find`; the result true ends the polling.
 * @returns The result of `find`; undefined when `isOver` ended the polling.
 */
export async function pollUntilFound<Found>(
  find: () => Found | undefined,
  isOver: () => boolean,
  clock: Clock,
): Promise<Found | undefined> {
  const startedAt = clock.now();
  while (!isOver()) {
    const found = find();
    if (found !== undefined) return found;
    await sleep(clock, clock.now() - startedAt < FIRST_MS ? INTERVAL_MS.first : INTERVAL_MS.later);
  }
  return undefined;
}
