import { backoffDelayMs, type NodeId } from '@cloudless/base';

/** When a node is quarantined, and for how long. Durations in milliseconds. */
export interface QuarantineOptions {
  /** This many losses within `windowMs` quarantine a node. Default 3. */
  readonly maxLosses?: number;
  /** Time in which losses count together. Default 600 000. */
  readonly windowMs?: number;
  /** Length of the first quarantine; each next one is twice as long. Default 600 000. */
  readonly firstMs?: number;
  /** Longest quarantine. Default 86 400 000, a day. */
  readonly maxMs?: number;
}

/**
 * Keeps new replicas off nodes that are lost repeatedly. Never delays the replacement of lost
 * replicas. When a node was not lost for as long as its last quarantine, counted from its end, the
 * next quarantine has the first length again.
 */
export interface Quarantine {
  /** Records a loss of a node, whatever its cause. */
  recordLoss(nodeId: NodeId, nowMs: number): void;
  /** When the current quarantine ends; undefined when there is none. */
  quarantinedUntil(nodeId: NodeId, nowMs: number): number | undefined;
  /**
   * Ends the quarantine and deletes the recorded losses, as when the node was deleted or repaired.
   */
  forget(nodeId: NodeId): void;
}

interface LossHistory {
  losses: number[];
  quarantines: number;
  lastLengthMs: number;
  untilMs: number;
  lastLossMs: number;
}

export function createQuarantine(options: QuarantineOptions = {}): Quarantine {
  const { maxLosses = 3, windowMs = 600_000, firstMs = 600_000, maxMs = 86_400_000 } = options;
  const nodes = new Map<NodeId, LossHistory>();
  return {
    recordLoss(nodeId, nowMs) {
      let node = nodes.get(nodeId);
      const wasStable =
        node !== undefined && nowMs - Math.max(node.untilMs, node.lastLossMs) >= node.lastLengthMs;
      if (node === undefined || (node.quarantines > 0 && wasStable)) {
        node = {
          losses: [],
          quarantines: 0,
          lastLengthMs: 0,
          untilMs: -Infinity,
          lastLossMs: nowMs,
        };
        nodes.set(nodeId, node);
      }
      node.lastLossMs = nowMs;
      node.losses = [...node.losses.filter((at) => nowMs - at < windowMs), nowMs];
      if (node.losses.length < maxLosses) return;
      node.losses = [];
      node.quarantines += 1;
      node.lastLengthMs = backoffDelayMs({ firstMs, maxMs }, node.quarantines);
      node.untilMs = Math.max(node.untilMs, nowMs + node.lastLengthMs);
    },
    quarantinedUntil(nodeId, nowMs) {
      const untilMs = nodes.get(nodeId)?.untilMs ?? -Infinity;
      return untilMs > nowMs ? untilMs : undefined;
    },
    forget(nodeId) {
      nodes.delete(nodeId);
    },
  };
}
