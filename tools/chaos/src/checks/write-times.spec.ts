import { countWritesWithin, findLongestPause, findNextLeader } from './write-times.js';

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

it.each([
  { title: 'sent after the loss', lostAtMs: 100, silentFromMs: undefined, ms: 160 },
  {
    title: 'sent before, answered when the lost leader was silent',
    lostAtMs: 85,
    silentFromMs: 104,
    ms: 20,
  },
  {
    title: 'sent before, answered while the lost leader could answer',
    lostAtMs: 96,
    silentFromMs: 106,
    ms: 164,
  },
  { title: 'never answered', lostAtMs: 300, silentFromMs: 310, ms: undefined },
])('shows the next leader by the first write: $title', ({ lostAtMs, silentFromMs, ms }) => {
  expect(findNextLeader(ATTEMPTS, lostAtMs, silentFromMs)).toBe(ms);
});

it('finds the longest time between two answers, without failed attempts', () => {
  expect(findLongestPause(ATTEMPTS, 85)).toBe(155);
  expect(findLongestPause(ATTEMPTS.slice(3), 90)).toBe(170);
  expect(findLongestPause([], 90)).toBe(0);
});

it('counts writes that were sent and acknowledged within a time', () => {
  expect(countWritesWithin(ATTEMPTS, { fromMs: 100, toMs: 262 })).toBe(1);
});
