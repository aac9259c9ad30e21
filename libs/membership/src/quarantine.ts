import { backoffDelayMs, type NodeId } from '@cloudless/base';

/**
 * When a node counts as flapping, and for how long it gets nothing new. Milliseconds and counts.
 */
export interface QuarantineOptions {
  /** So many losses within `windowMs` quarantine a node. Default 3. */
  readonly losses?: number;
  /** Default 600 000. */
  readonly windowMs?: number;
  /** The first quarantine; each next one is twice as long. Default 600 000. */
  readonly firstMs?: number;
  /** Never longer. Default 86 400 000, a day. */
  readonly maxMs?: number;
}

/**
 * Keeps new replicas off nodes that come and go. It never delays the replacement of what such a
 * node has lost. A node that is not lost for as long as its last quarantine took, counted from its
 * end, begins anew with the first length.
 */
export interface Quarantine {
  /** The node was lost, for whatever cause. */
  recordLoss(nodeId: NodeId, nowMs: number): void;
  /** When the quarantine ends; undefined when there is none now. */
  quarantinedUntil(nodeId: NodeId, nowMs: number): number | undefined;
  /**
   * Ends a quarantine and forgets the losses, as when the node is removed or somebody has repaired
   * it.
   */
  forget(nodeId: NodeId): void;
}

interface Flapping {
  losses: number[];
  quarantines: number;
  lastLengthMs: number;
  untilMs: number;
  lastLossMs: number;
}

export function createQuarantine(options: QuarantineOptions = {}): Quarantine {
  const { losses = 3, windowMs = 600_000, firstMs = 600_000, maxMs = 86_400_000 } = options;
  const nodes = new Map<NodeId, Flapping>();
  return {
    recordLoss(nodeId, nowMs) {
      let node = nodes.get(nodeId);
      const calm =
        node !== undefined && nowMs - Math.max(node.untilMs, node.lastLossMs) >= node.lastLengthMs;
      if (node === undefined || (node.quarantines > 0 && calm)) {
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
      if (node.losses.length < losses) return;
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
