import { SecondLimit } from './second-limit.js';

describe('SecondLimit', () => {
  it('permits its uses again a second after the first', () => {
    const limit = new SecondLimit(2);
    const times = [5_000, 5_000, 5_999, 6_000, 6_500, 6_999, 7_000];
    expect(times.map((nowMs) => limit.take(nowMs))).toEqual([
      ...[true, true, false],
      ...[true, true, false],
      true,
    ]);
  });
});
