import type { Planted } from '../planted.js';
import type { SimOutcome } from '../sim-cluster.js';
import { runSeed } from '../run/run-seed.js';
import { AGENT_PIECES } from './agent-pieces.js';
import { CONTROLLER_PIECES } from './controller-pieces.js';
import type { MuseumPiece } from './museum-piece.js';
import { ROLLOUT_PIECES } from './rollout-pieces.js';
import { STORE_PIECES } from './store-pieces.js';

/** Every bug that is planted into whole worlds. */
export const MUSEUM: readonly MuseumPiece[] = [
  ...CONTROLLER_PIECES,
  ...ROLLOUT_PIECES,
  ...STORE_PIECES,
  ...AGENT_PIECES,
];

/** One world with the bug of a piece in it. */
export function withBug(
  { planted, circumstances, plan }: MuseumPiece,
  seed: number,
): Promise<SimOutcome> {
  return runSeed(seed, { plan, planted: both(circumstances?.() ?? {}, planted()) });
}

/** The same world without it. */
export function withoutBug(
  { circumstances, plan }: MuseumPiece,
  seed: number,
): Promise<SimOutcome> {
  return runSeed(seed, { plan, planted: circumstances?.() ?? {} });
}

/**
 * The first world, from `from` on, that finds the bug of a piece, and is in order without it.
 * @param most - Worlds that are tried.
 * @throws when a world blames something else before, or none finds it.
 */
export async function findingSeed(piece: MuseumPiece, from: number, most: number): Promise<number> {
  for (let seed = from; seed < from + most; seed += 1) {
    const { violations } = await withBug(piece, seed);
    if (violations.length === 0) continue;
    if (!violations.some((violation) => piece.found.test(violation)))
      throw new Error(
        `${piece.name}: seed ${seed} blames something else: ${violations.join('; ')}`,
      );
    const { violations: others } = await withoutBug(piece, seed);
    if (others.length > 0)
      throw new Error(`${piece.name}: seed ${seed} fails without the bug: ${others.join('; ')}`);
    return seed;
  }
  throw new Error(`${piece.name}: none of ${most} worlds, from seed ${from} on, finds it`);
}

/** Circumstances with the plant on top: only clocks of agents are replaced by both. */
function both(circumstances: Planted, planted: Planted): Planted {
  const { agentClock = (clock) => clock } = circumstances;
  const { agentClock: plantedClock = (clock) => clock } = planted;
  return {
    ...circumstances,
    ...planted,
    agentClock: (clock, nodeId) => plantedClock(agentClock(clock, nodeId), nodeId),
  };
}
