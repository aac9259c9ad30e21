import fc from 'fast-check';
import { DURATION_BUCKETS, estimateQuantile, toDurationBucket } from './duration-buckets.js';

it.each([
  [0, 0],
  [0.9, 0],
  [1, 1],
  [2, 5],
  [1_000, 40],
  [1e9, DURATION_BUCKETS - 1],
  [Number.NaN, 0],
])('%d ms has bucket %d', (durationMs, index) => {
  expect(toDurationBucket(durationMs)).toBe(index);
});

it('an estimate is off by at most a fifth', () => {
  fc.assert(
    fc.property(
      fc.array(fc.double({ min: 1, max: 200_000, noNaN: true }), { minLength: 1, maxLength: 50 }),
      fc.constantFrom(0.5, 0.9, 0.99),
      (durations, quantile) => {
        const counts = Array<number>(DURATION_BUCKETS).fill(0);
        for (const duration of durations) counts[toDurationBucket(duration)]! += 1;
        const sorted = [...durations].sort((a, b) => a - b);
        const exact = sorted[Math.max(0, Math.ceil(quantile * sorted.length) - 1)]!;
        const estimate = estimateQuantile(counts, quantile)!;
        expect(estimate / exact).toBeGreaterThan(0.8);
        expect(estimate / exact).toBeLessThan(1.25);
      },
    ),
  );
});

it('there is no estimate without durations', () => {
  expect(estimateQuantile([], 0.5)).toBeUndefined();
  expect(estimateQuantile([0, 0], 0.99)).toBeUndefined();
});
