import { findLineFaults } from './line-numbers.js';

describe('findLineFaults', () => {
  it.each([
    { numbers: [], missing: 0, repeated: 0, first: '' },
    { numbers: [7, 8, 9], missing: 0, repeated: 0, first: '' },
    { numbers: [1, 2, 5, 6], missing: 2, repeated: 0, first: '5 after 2' },
    { numbers: [1, 2, 2, 3], missing: 0, repeated: 1, first: '2 after 2' },
    { numbers: [1, 2, 3, 1, 2, 3, 4], missing: 0, repeated: 3, first: '1 after 3' },
  ])('finds $missing missing and $repeated repeated lines in $numbers', (row) => {
    const { numbers, ...faults } = row;
    expect(findLineFaults(numbers)).toEqual(faults);
  });
});
