import fc from 'fast-check';
import { findFirst } from './find-first.js';

describe('findFirst', () => {
  it('returns the index of the first item that meets a condition, or the length of the list', () => {
    fc.assert(
      fc.property(fc.array(fc.nat(50), { maxLength: 30 }), fc.nat(51), (numbers, least) => {
        const items = numbers.sort((a, b) => a - b);
        const index = items.findIndex((item) => item >= least);
        expect(findFirst(items, (item) => item >= least)).toBe(index < 0 ? items.length : index);
      }),
    );
  });
});
