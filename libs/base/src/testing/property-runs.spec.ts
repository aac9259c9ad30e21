import { afterEach, describe, expect, it } from '@jest/globals';
import { propertyRuns } from './property-runs.js';

const VARIABLE = 'CLOUDLESS_PROPERTY_SCALE';
const before = process.env[VARIABLE];

describe('propertyRuns', () => {
  afterEach(() => {
    if (before === undefined) delete process.env[VARIABLE];
    else process.env[VARIABLE] = before;
  });

  it.each([
    { scale: undefined, count: 500, runs: 500 },
    { scale: '1', count: 500, runs: 500 },
    { scale: '0.1', count: 500, runs: 50 },
    { scale: '10', count: 25, runs: 250 },
    { scale: '0.001', count: 500, runs: 5 },
    { scale: '0.001', count: 2, runs: 2 },
  ])('returns $runs for $count runs at scale $scale', ({ scale, count, runs }) => {
    if (scale === undefined) delete process.env[VARIABLE];
    else process.env[VARIABLE] = scale;
    expect(propertyRuns(count)).toBe(runs);
  });

  it.each(['', '0', '-1', 'many', 'Infinity'])('rejects the scale "%s"', (scale) => {
    process.env[VARIABLE] = scale;
    expect(() => propertyRuns(500)).toThrow(
      `CLOUDLESS_PROPERTY_SCALE is "${scale}"; expected a positive number`,
    );
  });
});
