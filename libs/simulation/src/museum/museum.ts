import type { Planted } from '../planted.js';
import type { SimOutcome } from '../sim-cluster.js';
import { runSeed } from '../run/run-seed.js';
import { AGENT_PIECES } from './agent-pieces.js';
import { CONTROLLER_PIECES } from './controller-pieces.js';
import type { MuseumPiece } from './museum-piece.js';
import { ROLLOUT_PIECES } from './rollout-pieces.js';
import { STORE_PIECES } from './store-pieces.js';

/** All bugs that are injected into whole worlds. */
export const MUSEUM: readonly MuseumPiece[] = [
  ...CONTROLLER_PIECES,
  ...ROLLOUT_PIECES,
  ...STORE_PIECES,
  ...AGENT_PIECES,
];

/** Runs the world of a bug with the bug. */
export function withBug(
  { planted, circumstances, plan }: MuseumPiece,
  seed: number,
): Promise<SimOutcome> {
  return runSeed(seed, { plan, planted: both(circumstances?.() ?? {}, planted()) });
}

/** Runs the same world without the bug. */
export function withoutBug(
  { circumstances, plan }: MuseumPiece,
  seed: number,
): Promise<SimOutcome> {
  return runSeed(seed, { plan, planted: circumstances?.() ?? {} });
}

/**
 * Searches for a seed that finds the bug and passes without the bug, starting with seed `from`.
 * @param most - Largest number of seeds to try.
 * @throws when another violation comes first, or no seed finds the bug.
 */
export async function findingSeed(piece: MuseumPiece, from: number, most: number): Promise<number> {
  for (let seed = from; seed < from + most; seed += 1) {
    const { violations } = await withBug(piece, seed);
    if (violations.length === 0) continue;
    if (!violations.some((violation) => piece.found.test(violation)))
      throw new Error(
        `${piece.name}: seed ${seed} reports another violation: ${violations.join('; ')}`,
      );
    const { violations: others } = await withoutBug(piece, seed);
    if (others.length > 0)
      throw new Error(`${piece.name}: seed ${seed} fails without the bug: ${others.join('; ')}`);
    return seed;
  }
  throw new Error(`${piece.name}: none of ${most} seeds from ${from} finds the bug`);
}

/** Combines circumstances and the bug. Only agent clocks are replaced by both. */
function both(circumstances: Planted, planted: Planted): Planted {
  const { agentClock = (clock) => clock } = circumstances;
  const { agentClock: plantedClock = (clock) => clock } = planted;
  return {
    ...circumstances,
    ...planted,
    agentClock: (clock, nodeId) => plantedClock(agentClock(clock, nodeId), nodeId),
  };
}
