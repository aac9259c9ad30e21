import type { NodeId } from '@cloudless/base';
import type { LossCause, Transition } from './node-state.js';

/** Thresholds and durations of the brake. */
export interface BrakeOptions {
  /** Milliseconds within which losses count together. Default 30 000. */
  readonly windowMs?: number;
  /** Fewer silent nodes than this never engage the brake. Default 4. */
  readonly minNodes?: number;
  /** Milliseconds that one hold lasts at most. Default 300 000. */
  readonly holdMs?: number;
}

/**
 * State of the brake: while `released`, replicas of lost nodes may be replaced; while `holding`,
 * they may not. Times are milliseconds of the caller's clock.
 */
export type BrakeState =
  | { readonly kind: 'released' }
  | {
      readonly kind: 'holding';
      readonly sinceMs: number;
      /** Time at which the hold ends at the latest. */
      readonly untilMs: number;
      /** Number of nodes that fell silent and count for this hold. */
      readonly silentCount: number;
      /** Number of the silent nodes and the nodes that are alive. */
      readonly nodeCount: number;
      /** Explanation for users. */
      readonly reason: string;
    };

/**
 * Pauses replacement when more than half of the nodes fall silent together: the coordinator is then
 * more likely cut off than all these nodes are dead, and the other nodes could not take the load.
 * Losses by reset do not count: a machine that resets a connection is reachable. Agents that left
 * and did not return count: their machines most likely run on, in the middle of a slow upgrade.
 */
export interface ReplacementBrake {
  /** Records the transitions of a membership sweep. */
  apply(transitions: readonly Transition[]): void;
  /**
   * Evaluates the brake. The hold ends when half or fewer of the nodes are silent, or after its
   * longest time; the nodes that were lost by then do not engage the brake again.
   * @param aliveCount - Number of nodes that are trusted now.
   */
  check(nowMs: number, aliveCount: number): BrakeState;
  /**
   * Records that an operator confirmed the loss of nodes, which then no longer count.
   * @param nodeIds - Default: all silent nodes.
   */
  confirmLost(nodeIds?: Iterable<NodeId>): void;
}

/** Losses after which the machine of the node may run on, cut off from the coordinator. */
const SILENT: ReadonlySet<LossCause> = new Set(['silence', 'departure', 'hung']);

/** Creates a brake that is released. */
export function createReplacementBrake(options: BrakeOptions = {}): ReplacementBrake {
  const { windowMs = 30_000, minNodes = 4, holdMs = 300_000 } = options;
  /** Silent nodes with the time of their loss. */
  const silent = new Map<NodeId, number>();
  let sinceMs: number | undefined;
  const confirmLost = (nodeIds: Iterable<NodeId> = [...silent.keys()]): void => {
    for (const nodeId of nodeIds) silent.delete(nodeId);
  };
  return {
    apply(transitions) {
      for (const transition of transitions) {
        const { kind, nodeId, atMs } = transition;
        if (kind === 'slow' || kind === 'recovered') continue;
        if (kind === 'lost' && SILENT.has(transition.cause)) silent.set(nodeId, atMs);
        else silent.delete(nodeId);
      }
    },
    check(nowMs, aliveCount) {
      if (sinceMs === undefined) {
        for (const [nodeId, lostAt] of silent) if (nowMs - lostAt > windowMs) silent.delete(nodeId);
      } else if (nowMs - sinceMs >= holdMs) {
        silent.clear();
      }
      // Only nodes that were alive before the loss count: nodes that were lost long ago are neither
      // silent nor alive.
      const totalNodes = aliveCount + silent.size;
      const isMajority = silent.size * 2 > totalNodes;
      if (sinceMs === undefined && isMajority && silent.size >= minNodes) sinceMs = nowMs;
      else if (sinceMs !== undefined && !isMajority) {
        sinceMs = undefined;
        silent.clear();
      }
      if (sinceMs === undefined) return { kind: 'released' };
      const reason = `${silent.size} of ${totalNodes} nodes fell silent together`;
      return {
        kind: 'holding',
        sinceMs,
        untilMs: sinceMs + holdMs,
        silentCount: silent.size,
        nodeCount: totalNodes,
        reason,
      };
    },
    confirmLost,
  };
}
