import type { CaseFigures } from './measure.js';
import { toMedianRounds } from './rounds.js';

const figuresOf = (placementsPerCpuSecond: number): CaseFigures => ({
  ...{ placements: 10, seconds: 1, cpuSeconds: 1, placementsPerSecond: 10, cutByBudget: false },
  callUs: { count: 1, min: 1, median: 1, p95: 1, max: 1 },
  placementsPerCpuSecond,
});

describe('toMedianRounds', () => {
  it('returns the median round of each case, with the rates of all', () => {
    const rounds = [30, 10, 50].map((rate) => ({ a: figuresOf(rate), b: figuresOf(2 * rate) }));
    expect(toMedianRounds(rounds)).toEqual({
      a: { ...figuresOf(30), rounds: { count: 3, first: 30, min: 10, median: 30, max: 50 } },
      b: { ...figuresOf(60), rounds: { count: 3, first: 60, min: 20, median: 60, max: 100 } },
    });
  });

  it('returns the worse of the two middle rounds of an even number', () => {
    const rounds = [40, 10, 30, 20].map((rate) => ({ a: figuresOf(rate) }));
    expect(toMedianRounds(rounds)['a']?.placementsPerCpuSecond).toBe(20);
  });

  it('returns a single round as it is', () => {
    expect(toMedianRounds([{ a: figuresOf(7) }])['a']).toMatchObject(figuresOf(7));
  });
});
