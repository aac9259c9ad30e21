import type { NodeId } from '@cloudless/base';
import type { Transition } from './membership.js';

/** When a mass loss holds replacement back, and for how long. Milliseconds and counts. */
export interface BrakeOptions {
  /** Losses within this time count together. Default 30 000. */
  readonly windowMs?: number;
  /** Fewer silent nodes than this never brake. Default 4. */
  readonly leastNodes?: number;
  /** The longest hold. Default 300 000. */
  readonly holdMs?: number;
}

/** Whether replicas of lost nodes may be replaced now; `reason` is for people. */
export type BrakeState =
  | { readonly kind: 'released' }
  | {
      readonly kind: 'holding';
      readonly sinceMs: number;
      readonly untilMs: number;
      readonly silent: number;
      readonly of: number;
      readonly reason: string;
    };

/**
 * Holds replacement back when more than half of the nodes fall silent together: then it is likelier
 * that the coordinator is cut off than that they all died, and the survivors could not take the
 * load anyway. Losses by reset do not count: a reset is an answer of the other machine, silence is
 * none.
 */
export interface ReplacementBrake {
  /** Takes in what a sweep of the membership said. */
  apply(transitions: readonly Transition[]): void;
  /**
   * Judges anew. Ends the hold when the silent are half or fewer, or after its longest time; those
   * lost then do not brake again.
   * @param aliveCount - Nodes trusted now.
   */
  check(nowMs: number, aliveCount: number): BrakeState;
  /**
   * Somebody has made sure that these nodes are dead; without an argument, all that are silent.
   * They count no more.
   */
  confirmLost(nodeIds?: Iterable<NodeId>): void;
}

export function createReplacementBrake(options: BrakeOptions = {}): ReplacementBrake {
  const { windowMs = 30_000, leastNodes = 4, holdMs = 300_000 } = options;
  /** Silent nodes and when they were lost. */
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
      // The share is of the nodes that were there before the loss; those long gone play no part.
      const of = aliveCount + silent.size;
      const most = silent.size * 2 > of;
      if (sinceMs === undefined && most && silent.size >= leastNodes) sinceMs = nowMs;
      else if (sinceMs !== undefined && !most) {
        sinceMs = undefined;
        silent.clear();
      }
      if (sinceMs === undefined) return { kind: 'released' };
      const reason = `${silent.size} of ${of} nodes fell silent together`;
      return {
        kind: 'holding',
        sinceMs,
        untilMs: sinceMs + holdMs,
        silent: silent.size,
        of,
        reason,
      };
    },
    confirmLost,
  };
}
