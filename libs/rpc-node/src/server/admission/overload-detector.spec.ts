import { ManualClock } from '@cloudless/base/testing';
import { OverloadDetector } from './overload-detector.js';

/** Samples each delay, one every 100 ms, and returns the level after each sample. */
async function measureLevels(lags: readonly number[]): Promise<readonly number[]> {
  const clock = new ManualClock();
  const remainingLags = [...lags];
  const detector = new OverloadDetector(clock, () => remainingLags.shift() ?? 0);
  const levels: number[] = [];
  for (const _ of lags) {
    levels.push(detector.getLevel());
    await clock.advance(100);
  }
  return levels;
}

describe('OverloadDetector', () => {
  it.each([
    { name: 'a single stall', lags: [0, 0, 2_000, 0, 0, 0], levels: [0, 0, 0, 0, 0, 0] },
    {
      name: 'a standing delay',
      lags: [150, 150, 150, 150, 150, 150],
      levels: [0, 0, 0, 0, 1, 1],
    },
    {
      name: 'long delays with a short delay among them',
      lags: [5_000, 5_000, 400, 5_000, 5_000, 5_000],
      levels: [0, 0, 0, 0, 2, 2],
    },
    {
      name: 'delays of a third of a lease',
      lags: [1_000, 1_200, 1_500, 1_000, 1_000],
      levels: [0, 0, 0, 0, 3],
    },
    {
      name: 'one good sample after a standing delay',
      lags: [400, 400, 400, 400, 400, 10, 400],
      levels: [0, 0, 0, 0, 2, 0, 0],
    },
  ])('reports levels $levels for $name', async ({ lags, levels }) => {
    expect(await measureLevels(lags)).toEqual(levels);
  });

  it('detects a standing delay also when the clock is far from 0', async () => {
    const clock = new ManualClock();
    await clock.advance(3_600_000);
    const detector = new OverloadDetector(clock, () => 150);
    const levels: number[] = [];
    for (let sample = 0; sample < 5; sample += 1) {
      levels.push(detector.getLevel());
      await clock.advance(100);
    }
    expect(levels).toEqual([0, 0, 0, 0, 1]);
  });

  it('samples at most every 100 ms, and drops samples older than 1 s', async () => {
    const clock = new ManualClock();
    let samples = 0;
    const detector = new OverloadDetector(clock, () => {
      samples += 1;
      return 500;
    });
    for (let round = 0; round < 5; round += 1) {
      detector.getLevel();
      await clock.advance(100);
    }
    expect(detector.getLevel()).toBe(2);
    expect(detector.getLevel()).toBe(2);
    expect(samples).toBe(6);
    await clock.advance(10_000);
    expect(detector.getLevel()).toBe(0);
  });
});
