import { RandomWorld } from './random-world.js';

/** Every third world has a slow store. */
const SEEDS = Array.from({ length: 24 }, (_, index) => [index + 1, index % 3 === 2 ? 'slow' : 'fast'] as const);
const STEPS = 40;
const MINUTE_MS = 60_000;

describe('a random world', () => {
  it.each(SEEDS)('seed %i on a %s store keeps every promise, heals and converges', async (seed, store) => {
    const world = await RandomWorld.start(seed, store);
    for (let step = 0; step < STEPS && world.violations.length === 0; step += 1) await world.step();
    const left = world.violations.length === 0 ? await world.healAndSettle(MINUTE_MS) : [];
    const broken = [...world.violations, ...left];
    expect({ broken, story: broken.length === 0 ? [] : world.story }).toEqual({ broken: [], story: [] });
  });
});
