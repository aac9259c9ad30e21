import type { NodeId } from '@cloudless/base';
import type { Transition } from './membership.js';

/** Thresholds and durations of the brake. */
export interface BrakeOptions {
  /** Losses within this time count together, milliseconds. Default 30 000. */
  readonly windowMs?: number;
  /** Fewer silent nodes than this never engage the brake. Default 4. */
  readonly minNodes?: number;
  /** Longest hold, milliseconds. Default 300 000. */
  readonly holdMs?: number;
}

/** Whether replicas of lost nodes may be replaced now. `reason` is for users. */
export type BrakeState =
  | { readonly kind: 'released' }
  | {
      readonly kind: 'holding';
      readonly sinceMs: number;
      readonly untilMs: number;
      readonly silent: number;
      readonly total: number;
      readonly reason: string;
    };

/**
 * Pauses replacement when more than half of the nodes fall silent together: then the coordinator is
 * more likely cut off than all these nodes dead, and the other nodes could not take the load.
 * Losses by reset do not count: a reset is an answer of the other machine.
 */
export interface ReplacementBrake {
  /** Applies the transitions of a membership sweep. */
  apply(transitions: readonly Transition[]): void;
  /**
   * Evaluates the brake. The hold ends when half or fewer of the nodes are silent, or after its
   * longest time; the nodes that were lost by then do not engage the brake again.
   * @param aliveCount - Number of nodes that are trusted now.
   */
  check(nowMs: number, aliveCount: number): BrakeState;
  /**
   * Records that an operator confirmed the loss of these nodes; without an argument, of all silent
   * ones. They no longer count.
   */
  confirmLost(nodeIds?: Iterable<NodeId>): void;
}

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
        if (transition.kind === 'lost' && transition.cause === 'silence')
          silent.set(transition.nodeId, transition.atMs);
        else silent.delete(transition.nodeId);
      }
    },
    check(nowMs, aliveCount) {
      if (sinceMs === undefined) {
        for (const [nodeId, lostAt] of silent) if (nowMs - lostAt > windowMs) silent.delete(nodeId);
      } else if (nowMs - sinceMs >= holdMs) {
        silent.clear();
      }
      // The share is that of the nodes that were alive before the loss; nodes lost long ago do not
      // count.
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
        silent: silent.size,
        total: totalNodes,
        reason,
      };
    },
    confirmLost,
  };
}
