import { sleep, type Clock } from '@cloudless/base';

/** Steps of the first second, and after it: a look reads the process table of the machine. */
const STEP_MS = { first: 5, later: 100 };
const FIRST_MS = 1_000;

/**
 * Looks until something is there.
 * @param isOver - Asked before each look: no more looks once true.
 * @returns What `look` found; undefined when it was over before.
 */
export async function awaitFound<Found>(
  look: () => Found | undefined,
  isOver: () => boolean,
  clock: Clock,
): Promise<Found | undefined> {
  const startedAt = clock.now();
  while (!isOver()) {
    const found = look();
    if (found !== undefined) return found;
    await sleep(clock, clock.now() - startedAt < FIRST_MS ? STEP_MS.first : STEP_MS.later);
  }
  return undefined;
}
