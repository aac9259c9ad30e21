import type { InjectedBug } from '../sim-cluster/injected-bug.js';
import type { SimOutcome } from '../sim-cluster/sim-cluster.js';
import { runSeed } from '../run/run-seed.js';
import { AGENT_BUGS } from './agent-bugs.js';
import { CONTROLLER_BUGS } from './controller-bugs.js';
import { LEADERSHIP_BUGS } from './leadership-bugs.js';
import type { KnownBug } from './known-bug.js';
import { NETWORK_BUGS } from './network-bugs.js';
import { ROLLOUT_BUGS } from './rollout-bugs.js';
import { STORE_BUGS } from './store-bugs.js';

/** All bugs that are injected into whole worlds. */
export const BUG_CATALOGUE: readonly KnownBug[] = [
  ...CONTROLLER_BUGS,
  ...ROLLOUT_BUGS,
  ...STORE_BUGS,
  ...AGENT_BUGS,
  ...LEADERSHIP_BUGS,
  ...NETWORK_BUGS,
];

/** Runs the world of a bug with the bug. */
export function runWithBug(
  { inject, circumstances, plan }: KnownBug,
  seed: number,
): Promise<SimOutcome> {
  return runSeed(seed, { plan, injected: combine(circumstances?.() ?? {}, inject()) });
}

/** Runs the world of a bug without the bug, but under the same circumstances. */
export function runWithoutBug(
  { circumstances, plan }: KnownBug,
  seed: number,
): Promise<SimOutcome> {
  return runSeed(seed, { plan, injected: circumstances?.() ?? {} });
}

/**
 * Searches for a seed whose world reports the bug, and passes without the bug.
 * @param from - First seed to try; the others follow in ascending order.
 * @param maxSeeds - Largest number of seeds to try.
 * @throws An error when another violation comes first, or no seed finds the bug.
 */
export async function findSeed(bug: KnownBug, from: number, maxSeeds: number): Promise<number> {
  for (let seed = from; seed < from + maxSeeds; seed += 1) {
    const { violations } = await runWithBug(bug, seed);
    if (violations.length === 0) continue;
    if (!violations.some((violation) => bug.expectedViolation.test(violation)))
      throw new Error(
        `${bug.name}: seed ${seed} reports another violation: ${violations.join('; ')}`,
      );
    const { violations: others } = await runWithoutBug(bug, seed);
    if (others.length > 0)
      throw new Error(`${bug.name}: seed ${seed} fails without the bug: ${others.join('; ')}`);
    return seed;
  }
  throw new Error(`${bug.name}: none of ${maxSeeds} seeds from ${from} finds the bug`);
}

/** Combines circumstances and the bug. Only the agent clock can be replaced by both. */
function combine(circumstances: InjectedBug, injected: InjectedBug): InjectedBug {
  const { agentClock = (clock) => clock } = circumstances;
  const { agentClock: injectedClock = (clock) => clock } = injected;
  return {
    ...circumstances,
    ...injected,
    agentClock: (clock, nodeId) => injectedClock(agentClock(clock, nodeId), nodeId),
  };
}
