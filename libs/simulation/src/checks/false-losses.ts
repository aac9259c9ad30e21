import type { NodeRecord } from '@cloudless/api/store';
import type { SimNode } from '../parts/sim-node.js';
import { findReplicaChanges } from './commit-changes.js';
import type { Checker } from './commit-checkers.js';

/** Input of {@link createLossCheckers}. */
export interface FalseLossWorld {
  readonly nodes: readonly SimNode[];
  /** Time of the world at which a coordinator was last paused, milliseconds. */
  readonly lastPause: number;
  readonly time: { now(): number };
}

/**
 * Longest time until an agent has reconnected, milliseconds: the agent gives up waiting for a lost
 * response after 5 s, waits 1 s, and dials.
 */
const RETURN_MS = 7_000;

/** Creates the checkers of losses that had no cause. */
export function createLossCheckers(
  world: FalseLossWorld,
  leaseMs: number,
  graceMs: number,
): readonly Checker[] {
  return [createFalseLossChecker(world, leaseMs), createGraceChecker(world, graceMs)];
}

/**
 * Invariant 17: a machine whose agent and network worked all the time is not declared lost,
 * whatever happened to the coordinator.
 */
function createFalseLossChecker(world: FalseLossWorld, leaseMs: number): Checker {
  return ({ changes }) =>
    findReplicaChanges(changes).flatMap(({ before, after }) => {
      if (before?.lost !== false || after?.lost !== true) return [];
      const since = world.time.now() - leaseMs - RETURN_MS;
      const node = world.nodes.find(({ id }) => id === after.nodeId);
      if (node === undefined || node.quietSince !== undefined || node.isDestroyed) return [];
      const wasHealthy =
        since > 0 &&
        node.activeSince < since &&
        node.link.wasPerfectSince(since) &&
        world.lastPause < since;
      return wasHealthy
        ? [`17: ${after.id} was declared lost, but ${node.id} was healthy all the time`]
        : [];
    });
}

/** Slowest and fastest clocks differ by this factor from the time of the world. */
const CLOCK_ERROR = 0.1;

/**
 * A node whose agent left in good order is not declared lost before the grace has passed, unless a
 * user confirmed the loss.
 */
function createGraceChecker(
  world: Pick<FalseLossWorld, 'nodes' | 'time'>,
  graceMs: number,
): Checker {
  /** Earliest time at which the agent can have left whose departure is recorded, by node. */
  const leftAt = new Map<string, number>();
  return ({ changes }) =>
    changes.flatMap(({ kind, id, before: former, after: current }) => {
      if (kind !== 'node') return [];
      const [before, after] = [former as NodeRecord | undefined, current as NodeRecord | undefined];
      if (after?.departure !== undefined && before?.departure === undefined) {
        const departures = world.nodes.find((node) => node.id === id)?.leftAt.splice(0) ?? [];
        leftAt.set(id, Math.min(...departures, world.time.now()));
      }
      const isLoss = before?.lost === false && after?.lost === true;
      if (!isLoss || before.departure === undefined || before.lossConfirmed) return [];
      const awayMs = world.time.now() - (leftAt.get(id) ?? 0);
      return awayMs < graceMs * (1 - CLOCK_ERROR)
        ? [
            `17: ${id} was declared lost ${Math.round(awayMs)} ms after its agent left in good order`,
          ]
        : [];
    });
}
