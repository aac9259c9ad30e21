import { splitCosts } from './time-per-replica.js';

const at = (started: number, seconds: number) => ({
  started,
  seconds,
  coordinatorCpuSeconds: seconds / 2,
});

describe('splitCosts', () => {
  it('computes equal costs for equal progress, between samples as well', () => {
    expect(splitCosts([at(0, 0), at(300, 3), at(1_000, 10)], 1_000, 2)).toEqual([
      { upTo: 500, wallUs: 10_000, cpuUs: 5_000 },
      { upTo: 1_000, wallUs: 10_000, cpuUs: 5_000 },
    ]);
  });

  it('shows a part that cost more', () => {
    const costs = splitCosts([at(500, 1), at(1_000, 4)], 1_000, 2);
    expect(costs.map(({ wallUs }) => wallUs)).toEqual([2_000, 6_000]);
  });

  it('leaves out parts that the samples do not reach', () => {
    expect(splitCosts([at(600, 6)], 1_000, 2)).toHaveLength(1);
  });
});
