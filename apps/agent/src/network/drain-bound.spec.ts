import { ManualClock } from '@cloudless/base/testing';
import { sleep } from '@cloudless/base';
import { DrainBound } from './drain-bound.js';

const HOUR_MS = 3_600_000;

describe('DrainBound', () => {
  const clock = new ManualClock();
  let ends: number[];
  let bound: DrainBound;
  let startMs: number;
  beforeEach(() => {
    ends = [];
    startMs = clock.now();
    bound = new DrainBound(
      clock,
      (withinMs) => sleep(clock, withinMs),
      () => ends.push(clock.now() - startMs),
    );
  });

  it('ends a proxy that drains for an hour within 3 s when it is asked to end then', async () => {
    bound.stop(HOUR_MS);
    await clock.advance(10_000);
    bound.stop(3_000);
    await clock.advance(3_000);
    expect(ends).toEqual([13_000]);
  });

  it('never gives a proxy more time than before', async () => {
    bound.stop(3_000);
    bound.stop(HOUR_MS);
    await clock.advance(3_000);
    expect(ends).toEqual([3_000]);
  });
});
