import { findSessionFault } from './session-answers.js';

describe('findSessionFault', () => {
  it.each([
    { lines: ['1 70', '2 70', '3 70'], fault: undefined },
    { lines: [], fault: 'no query was answered' },
    { lines: ['1 70', '3 70'], fault: 'answer 2 is "3 70", expected "2 70"' },
    { lines: ['1 70', '2 71'], fault: 'answer 2 is "2 71", expected "2 70"' },
    { lines: ['1 70', 'FATAL: x'], fault: 'answer 2 is "FATAL: x", expected "2 70"' },
  ])('finds $fault in $lines', ({ lines, fault }) => {
    expect(findSessionFault(lines)).toBe(fault);
  });
});
