import { sleep, type Clock } from '@cloudless/base';

/**
 * Interval of the polls in the first second, and later: each poll reads the process table of the
 * machine.
 */
const INTERVAL_MS = { first: 5, later: 100 };
const FIRST_MS = 1_000;

/**
 * Polls until `look` returns a value.
 * @param isOver - Checked before each look; true ends the polling.
 * @returns The result of `look`; undefined when the polling ended before.
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
