import { SimCluster, type SimClusterOptions, type SimOutcome } from '../sim-cluster/sim-cluster.js';

/** Runs one world. A fault of the simulation itself counts as a violation. */
export async function runSeed(
  seed: number,
  options: Omit<SimClusterOptions, 'seed'> = {},
): Promise<SimOutcome> {
  const world = new SimCluster({ ...options, seed });
  try {
    return await world.run();
  } catch (reason) {
    world.reportViolation(
      `the simulation failed: ${reason instanceof Error ? (reason.stack ?? reason.message) : String(reason)}`,
    );
    const { violations, trace } = world;
    return {
      seed,
      violations,
      trace: trace.lines,
      convergedMs: undefined,
      commits: 0,
      acknowledged: 0,
    };
  }
}
