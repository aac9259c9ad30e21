import fc from 'fast-check';
import { backoffDelayMs, createSeededRandom } from '../index.js';

const policy = { firstMs: 100, maxMs: 5_000 };

describe('backoffDelayMs', () => {
  it.each([
    { failures: -1, delayMs: 0 },
    { failures: 0, delayMs: 0 },
    { failures: 1, delayMs: 100 },
    { failures: 2, delayMs: 200 },
    { failures: 6, delayMs: 3_200 },
    { failures: 7, delayMs: 5_000 },
    { failures: 1e9, delayMs: 5_000 },
  ])('returns $delayMs ms after $failures failures', ({ failures, delayMs }) => {
    expect(backoffDelayMs(policy, failures)).toBe(delayMs);
  });

  it.each([
    {
      name: 'multiplies the delay by the factor of the policy',
      policy: { ...policy, factor: 1.5 },
      failures: 3,
      delayMs: 225,
    },
    {
      name: 'returns the first delay for every failure when the factor is 1',
      policy: { ...policy, factor: 1 },
      failures: 50,
      delayMs: 100,
    },
    {
      name: 'returns the maximum when the first delay is larger',
      policy: { firstMs: 9_000, maxMs: 5_000 },
      failures: 1,
      delayMs: 5_000,
    },
  ])('$name', ({ policy: given, failures, delayMs }) => {
    expect(backoffDelayMs(given, failures)).toBe(delayMs);
  });

  it('returns delays that never shrink with more failures and never exceed the maximum', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 0, max: 200 }),
        fc.integer({ min: 1, max: 1_000 }),
        fc.double({ min: 1, max: 10, noNaN: true }),
        (failures, firstMs, factor) => {
          const given = { firstMs, maxMs: 60_000, factor };
          const delay = backoffDelayMs(given, failures);
          expect(delay).toBeLessThanOrEqual(60_000);
          expect(backoffDelayMs(given, failures + 1)).toBeGreaterThanOrEqual(delay);
        },
      ),
    );
  });

  it('subtracts a random share of up to jitter, over the whole range', () => {
    const random = createSeededRandom(3);
    const delays = Array.from({ length: 1_000 }, () =>
      backoffDelayMs({ ...policy, jitter: 0.5 }, 1, random),
    );
    expect(Math.max(...delays)).toBeLessThanOrEqual(100);
    expect(Math.min(...delays)).toBeGreaterThan(50);
    expect(Math.max(...delays) - Math.min(...delays)).toBeGreaterThan(45);
  });
});
