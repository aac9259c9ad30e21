import fc from 'fast-check';
import { getStepSize } from './canary-steps.js';
import type { CanaryStep } from './rollout-state.js';

const toSteps = (sizes: readonly CanaryStep['size'][]): readonly CanaryStep[] =>
  sizes.map((size) => ({ size, wait: 'promotion' }));

describe('getStepSize', () => {
  it.each<{ name: string; sizes: CanaryStep['size'][]; want: number; size: number }>([
    { name: 'a number', sizes: [{ replicas: 3 }], want: 10, size: 3 },
    { name: 'at most all', sizes: [{ replicas: 12 }], want: 10, size: 10 },
    { name: 'a percentage', sizes: [{ percent: 20 }], want: 10, size: 2 },
    { name: 'a percentage, rounded up', sizes: [{ percent: 21 }], want: 10, size: 3 },
    { name: 'at least one for a small percentage', sizes: [{ percent: 1 }], want: 2, size: 1 },
    { name: 'at least one for 0 percent', sizes: [{ percent: 0 }], want: 200, size: 1 },
    { name: 'all for 100 percent', sizes: [{ percent: 100 }], want: 7, size: 7 },
    { name: 'the one replica that is wanted', sizes: [{ percent: 10 }], want: 1, size: 1 },
    {
      name: 'no fewer than the step before',
      sizes: [{ replicas: 5 }, { percent: 20 }],
      want: 10,
      size: 5,
    },
  ])('returns $name: $size of $want', ({ sizes, want, size }) => {
    expect(getStepSize(toSteps(sizes), sizes.length - 1, want)).toBe(size);
  });

  it('covers the share of each percentage with the fewest replicas, and never shrinks', () => {
    const percents = fc
      .uniqueArray(fc.integer({ min: 0, max: 100 }), { minLength: 1 })
      .map((values) => values.toSorted((a, b) => a - b));
    fc.assert(
      fc.property(percents, fc.integer({ min: 1, max: 1_000_000 }), (values, want) => {
        const steps = toSteps(values.map((percent) => ({ percent })));
        let before = 1;
        for (const [index, percent] of values.entries()) {
          const size = getStepSize(steps, index, want);
          expect(size).toBeGreaterThanOrEqual(before);
          expect(size).toBeLessThanOrEqual(want);
          expect(size * 100).toBeGreaterThanOrEqual(percent * want);
          if (size > 1) expect((size - 1) * 100).toBeLessThan(percent * want);
          before = size;
        }
      }),
    );
  });
});
