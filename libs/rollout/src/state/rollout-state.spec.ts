import { formatDuration } from './rollout-state.js';

describe('formatDuration', () => {
  it.each([
    { ms: 0, text: '0ms' },
    { ms: 999, text: '999ms' },
    { ms: 1_000, text: '1s' },
    { ms: 1_540, text: '1.5s' },
    { ms: 59_999, text: '60s' },
    { ms: 60_000, text: '1m' },
    { ms: 90_000, text: '90s' },
    { ms: 600_000, text: '10m' },
  ])('formats $ms ms as $text', ({ ms, text }) => expect(formatDuration(ms)).toBe(text));
});
