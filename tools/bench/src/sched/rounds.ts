import type { CaseFigures } from './measure.js';

/** Figures of a case in the round with the median rate, and the rates of all rounds. */
export interface CaseRounds extends CaseFigures {
  /** Placements per CPU second; `first` is that of the round that was measured first. */
  readonly rounds: {
    readonly count: number;
    readonly first: number;
    readonly min: number;
    readonly median: number;
    readonly max: number;
  };
}

/**
 * Returns for each case the figures of its median round. The first rounds include much of the work
 * of the compiler of Node.js, which in a short case takes longer than the placements, and any round
 * may include a long collection of garbage.
 * @param rounds - At least one round; all with the same cases.
 */
export function toMedianRounds(
  rounds: readonly Readonly<Record<string, CaseFigures>>[],
): Readonly<Record<string, CaseRounds>> {
  const [first = {}] = rounds;
  return Object.fromEntries(
    Object.keys(first).map((name) => [
      name,
      toMedian(rounds.flatMap(({ [name]: figures }) => (figures === undefined ? [] : [figures]))),
    ]),
  );
}

function toMedian(figures: readonly CaseFigures[]): CaseRounds {
  const sorted = [...figures].sort((a, b) => a.placementsPerCpuSecond - b.placementsPerCpuSecond);
  // Of an even number of rounds, the worse one in the middle.
  const median = sorted[Math.floor((sorted.length - 1) / 2)];
  const [first, min, max] = [figures[0], sorted[0], sorted.at(-1)].map(
    (one) => one?.placementsPerCpuSecond ?? Number.NaN,
  ) as [number, number, number];
  if (median === undefined) throw new Error('a case needs at least one round');
  const rate = median.placementsPerCpuSecond;
  return { ...median, rounds: { count: sorted.length, first, min, median: rate, max } };
}
