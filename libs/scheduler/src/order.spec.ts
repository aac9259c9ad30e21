import { compareNumbers, compareText, smallest } from './order.js';

describe('compareText', () => {
  it.each([
    { a: 'n1', b: 'n2', result: -1 },
    { a: 'n2', b: 'n1', result: 1 },
    { a: 'n1', b: 'n1', result: 0 },
    { a: 'n10', b: 'n9', result: -1 },
    { a: 'Z', b: 'a', result: -1 },
  ])('returns $result for $a and $b', ({ a, b, result }) => expect(compareText(a, b)).toBe(result));
});

describe('compareNumbers', () => {
  it.each([
    { a: 1, b: 2, result: -1 },
    { a: 2, b: 1, result: 1 },
    { a: Infinity, b: Infinity, result: 0 },
    { a: -Infinity, b: Infinity, result: -1 },
  ])('returns $result for $a and $b', ({ a, b, result }) =>
    expect(compareNumbers(a, b)).toBe(result),
  );
});

describe('smallest', () => {
  it('returns the alphabetically first text', () =>
    expect(smallest(['zone', 'node', 'rack'])).toBe('node'));
  it('returns undefined when there is no text', () => expect(smallest([])).toBeUndefined());
});
