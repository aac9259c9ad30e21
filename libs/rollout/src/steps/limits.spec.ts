import fc from 'fast-check';
import { findImpossibleLimits, resolveLimits, validateVoluntaryStop } from '../index.js';

describe('resolveLimits', () => {
  it.each([
    {
      name: 'keeps desired − 1 replicas without min_available',
      spec: { desired: 5 },
      minAvailable: 4,
      maxSurge: 1,
      batch: 1,
    },
    {
      name: 'treats min_available 0 as absent',
      spec: { desired: 5, minAvailable: 0 },
      minAvailable: 4,
      maxSurge: 1,
      batch: 1,
    },
    {
      name: 'treats max_unavailable 0 as absent',
      spec: { desired: 5, maxUnavailable: 0 },
      minAvailable: 4,
      maxSurge: 1,
      batch: 1,
    },
    {
      name: 'derives minAvailable and batch from max_unavailable',
      spec: { desired: 5, maxUnavailable: 2 },
      minAvailable: 3,
      maxSurge: 1,
      batch: 2,
    },
    {
      name: 'keeps a single replica without min_available',
      spec: { desired: 1 },
      minAvailable: 1,
      maxSurge: 1,
      batch: 1,
    },
    {
      name: 'keeps no replica of one with max_unavailable 1',
      spec: { desired: 1, maxUnavailable: 1 },
      minAvailable: 0,
      maxSurge: 1,
      batch: 1,
    },
    {
      name: 'keeps no replica with max_unavailable above desired',
      spec: { desired: 3, maxUnavailable: 9 },
      minAvailable: 0,
      maxSurge: 1,
      batch: 9,
    },
    {
      name: 'prefers min_available to max_unavailable',
      spec: { desired: 5, maxUnavailable: 3, minAvailable: 4 },
      minAvailable: 4,
      maxSurge: 1,
      batch: 3,
    },
    {
      name: 'clamps min_available to desired',
      spec: { desired: 3, minAvailable: 8 },
      minAvailable: 3,
      maxSurge: 1,
      batch: 1,
      written: { writtenMinAvailable: 8 },
    },
    {
      name: 'ignores min_available when no replica is wanted',
      spec: { desired: 0, minAvailable: 2 },
      minAvailable: 0,
      maxSurge: 1,
      batch: 1,
      written: { writtenMinAvailable: 2 },
    },
    {
      name: 'keeps no replica when none is wanted',
      spec: { desired: 0 },
      minAvailable: 0,
      maxSurge: 1,
      batch: 1,
    },
    {
      name: 'keeps an explicit max_surge of 0',
      spec: { desired: 3, maxSurge: 0 },
      minAvailable: 2,
      maxSurge: 0,
      batch: 1,
    },
    {
      name: 'keeps an explicit max_surge of 4',
      spec: { desired: 3, maxSurge: 4 },
      minAvailable: 2,
      maxSurge: 4,
      batch: 1,
    },
  ])('$name', ({ spec, minAvailable, maxSurge, batch, written }) => {
    const expected = { want: spec.desired, minAvailable, maxSurge, batch, ...written };
    expect(resolveLimits(spec)).toEqual(expected);
  });

  it('keeps 0 <= minAvailable <= want and batch >= 1 for any input', () => {
    const count = fc.integer({ min: -3, max: 20 });
    fc.assert(
      fc.property(
        count,
        fc.option(count),
        fc.option(count),
        fc.option(count),
        (desired, surge, unavailable, available) => {
          const limits = resolveLimits({
            desired,
            ...(surge === null ? {} : { maxSurge: surge }),
            ...(unavailable === null ? {} : { maxUnavailable: unavailable }),
            ...(available === null ? {} : { minAvailable: available }),
          });
          expect(limits.minAvailable).toBeGreaterThanOrEqual(0);
          expect(limits.minAvailable).toBeLessThanOrEqual(limits.want);
          expect(limits.batch).toBeGreaterThanOrEqual(1);
          expect(limits.maxSurge).toBeGreaterThanOrEqual(0);
        },
      ),
    );
  });
});

describe('findImpossibleLimits', () => {
  it.each(
    [
      {
        spec: { desired: 3, maxSurge: 0, minAvailable: 3 },
        text: 'max_surge 0 and min_available 3 of 3 leave no possible move',
      },
      {
        spec: { desired: 3, maxSurge: 0, minAvailable: 7 },
        text: 'max_surge 0 and min_available 7, which counts as 3 of 3, leave no possible move',
      },
      {
        spec: { desired: 1, maxSurge: 0 },
        text: 'max_surge 0 and min_available 1 of 1 leave no possible move',
      },
      { spec: { desired: 1, maxSurge: 0, maxUnavailable: 1 }, text: undefined },
      {
        spec: { desired: 3, maxSurge: 0, maxUnavailable: 1, minAvailable: 3 },
        text: 'max_surge 0 and min_available 3 of 3 leave no possible move',
      },
      { spec: { desired: 3, maxSurge: 0 }, text: undefined },
      { spec: { desired: 3, minAvailable: 3 }, text: undefined },
      { spec: { desired: 3, maxSurge: 1, minAvailable: 3 }, text: undefined },
      { spec: { desired: 0, maxSurge: 0, minAvailable: 3 }, text: undefined },
    ].map((row) => ({ ...row, result: row.text === undefined ? 'undefined' : 'a reason' })),
  )('returns $result for $spec', ({ spec, text }) => {
    expect(findImpossibleLimits(spec)).toBe(text);
  });
});

describe('validateVoluntaryStop', () => {
  it.each([
    { available: 3, min: 2 },
    { available: 2, min: 2 },
    { available: 0, min: 0 },
  ])(
    'allows a stop that leaves $available available with min_available $min',
    ({ available, min }) => {
      expect(validateVoluntaryStop(available, min)).toEqual({ allowed: true });
    },
  );

  it('names both numbers when it refuses a stop', () => {
    expect(validateVoluntaryStop(1, 2)).toEqual({
      allowed: false,
      available: 1,
      minAvailable: 2,
      reason: 'the stop would leave 1 available, below min_available 2',
    });
  });
});
