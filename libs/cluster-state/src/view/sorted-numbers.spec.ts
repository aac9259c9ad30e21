import fc from 'fast-check';
import { SortedNumbers } from './sorted-numbers.js';

describe('SortedNumbers', () => {
  it('contains the added numbers in ascending order, from any number on', () => {
    const arbChange = fc.tuple(fc.boolean(), fc.nat(40));
    fc.assert(
      fc.property(fc.array(arbChange, { maxLength: 80 }), fc.nat(41), (changes, after) => {
        const numbers = new SortedNumbers();
        const expected = new Set<number>();
        for (const [isAdded, value] of changes) {
          numbers[isAdded ? 'add' : 'delete'](value);
          expected[isAdded ? 'add' : 'delete'](value);
        }
        const sorted = [...expected].sort((a, b) => a - b);
        expect([...numbers.after()]).toEqual(sorted);
        expect([...numbers.after(after)]).toEqual(sorted.filter((value) => value > after));
        expect([numbers.first, numbers.last]).toEqual([sorted[0], sorted.at(-1)]);
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
    expect([...numbers.after()]).toEqual(all);
    const deleted = new Set(changed.slice(0, 3_000));
    for (const value of deleted) numbers.delete(value);
    const left = all.filter((value) => !deleted.has(value));
    expect([...numbers.after()]).toEqual(left);
    for (const value of left) numbers.delete(value);
    expect([...numbers.after()]).toEqual([]);
  });
});
