import type { SimNode } from '../parts/sim-node.js';
import { findReplicaChanges } from './commit-changes.js';
import type { Checker } from './commit-checkers.js';

/** Input of {@link createFalseLossChecker}. */
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

/**
 * Invariant 17: a machine whose agent and network worked all the time is not declared lost,
 * whatever happened to the coordinator.
 */
export function createFalseLossChecker(world: FalseLossWorld, leaseMs: number): Checker {
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
