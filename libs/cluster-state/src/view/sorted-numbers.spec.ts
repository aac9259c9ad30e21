import fc from 'fast-check';
import { SortedNumbers } from './sorted-numbers.js';

/** Returns the numbers from the lowest to the highest, and empties the set. */
function drain(numbers: SortedNumbers): readonly number[] {
  const drained: number[] = [];
  for (let { first } = numbers; first !== undefined; { first } = numbers) {
    drained.push(first);
    numbers.delete(first);
  }
  return drained;
}

describe('SortedNumbers', () => {
  it('contains the numbers that were added and not deleted, and knows both ends', () => {
    const arbChange = fc.tuple(fc.boolean(), fc.nat(40));
    fc.assert(
      fc.property(fc.array(arbChange, { maxLength: 80 }), (changes) => {
        const numbers = new SortedNumbers();
        const expected = new Set<number>();
        for (const [isAdded, value] of changes) {
          numbers[isAdded ? 'add' : 'delete'](value);
          expected[isAdded ? 'add' : 'delete'](value);
        }
        const sorted = [...expected].sort((a, b) => a - b);
        expect([numbers.first, numbers.last]).toEqual([sorted[0], sorted.at(-1)]);
        expect(drain(numbers)).toEqual(sorted);
      }),
    );
  });

  it.each([
    { name: 'ascending', order: (a: number, b: number) => a - b },
    { name: 'descending', order: (a: number, b: number) => b - a },
    {
      name: 'mixed',
      order: (a: number, b: number) => ((a * 7_919) % 5_003) - ((b * 7_919) % 5_003),
    },
  ])('keeps thousands of numbers that are added and deleted in $name order', ({ order }) => {
    const all = Array.from({ length: 5_000 }, (_, index) => index);
    const changed = [...all].sort(order);
    const numbers = new SortedNumbers();
    for (const value of changed) numbers.add(value);
    expect(drain(numbers)).toEqual(all);
    for (const value of changed) numbers.add(value);
    const deleted = new Set(changed.slice(0, 3_000));
    for (const value of deleted) numbers.delete(value);
    const left = all.filter((value) => !deleted.has(value));
    expect([numbers.first, numbers.last]).toEqual([left[0], left.at(-1)]);
    expect(drain(numbers)).toEqual(left);
    expect([numbers.first, numbers.last]).toEqual([undefined, undefined]);
  });
});
