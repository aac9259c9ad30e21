import { jest } from '@jest/globals';
import { RandomWorld } from '../test-cluster/random-world.js';

/** Each test runs a whole cluster, which takes long on a busy machine. */
jest.setTimeout(60_000);

describe('random worlds with a GLOBAL workload and taints', () => {
  it.each(Array.from({ length: 60 }, (_, index) => index + 1))(
    'keep all invariants and converge, seed %i',
    async (seed) => {
      const world = await RandomWorld.start(seed, seed % 4 === 0 ? 'slow' : 'fast', {
        globalAndTaints: true,
      });
      for (let step = 0; step < 60 && world.violations.length === 0; step += 1) await world.step();
      const differences = world.violations.length > 0 ? [] : await world.healAndSettle(120_000);
      expect({ violations: world.violations, differences, history: world.history }).toEqual({
        violations: [],
        differences: [],
        history: world.history,
      });
    },
  );
});
