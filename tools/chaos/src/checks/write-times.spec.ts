import { countWritesWithin, findFirstWriteAfter, findLongestPause } from './write-times.js';

const UNAVAILABLE = 14;
const attempt = (sentAtMs: number, endedAtMs: number, code?: number) => ({
  sentAtMs,
  endedAtMs,
  code,
});
/** The leader is lost at 100; the next one answers from 260 on. */
const ATTEMPTS = [
  attempt(80, 90),
  attempt(95, 105),
  attempt(110, 120, UNAVAILABLE),
  attempt(230, 260),
  attempt(240, 265),
];

it('finds the first answer to a write that was sent after the fault', () => {
  expect(findFirstWriteAfter(ATTEMPTS, 100)).toBe(160);
  expect(findFirstWriteAfter(ATTEMPTS, 300)).toBeUndefined();
});

it('finds the longest time between two answers, without failed attempts', () => {
  expect(findLongestPause(ATTEMPTS, 85)).toBe(155);
  expect(findLongestPause(ATTEMPTS.slice(3), 90)).toBe(170);
  expect(findLongestPause([], 90)).toBe(0);
});

it('counts writes that were sent and acknowledged within a time', () => {
  expect(countWritesWithin(ATTEMPTS, { fromMs: 100, toMs: 262 })).toBe(1);
});
