import { formatZonedTime } from './local-time.js';

describe('formatZonedTime', () => {
  it.each([
    { zone: 'UTC', offset: 0, expected: '2026-01-31T23:30:00.250Z' },
    { zone: 'Paris', offset: 60, expected: '2026-02-01T00:30:00.250+01:00' },
    { zone: 'Kolkata', offset: 330, expected: '2026-02-01T05:00:00.250+05:30' },
    { zone: 'Newfoundland', offset: -210, expected: '2026-01-31T20:00:00.250-03:30' },
  ])('writes the time of $zone with its offset', ({ offset, expected }) => {
    const text = formatZonedTime(Date.UTC(2026, 0, 31, 23, 30, 0, 250), offset);
    expect(text).toBe(expected);
    expect(Date.parse(text)).toBe(Date.UTC(2026, 0, 31, 23, 30, 0, 250));
  });
});
