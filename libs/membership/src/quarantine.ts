import { backoffDelayMs, type NodeId } from '@cloudless/base';

/** Conditions and lengths of a quarantine. All durations in milliseconds. */
export interface QuarantineOptions {
  /** Number of losses within `windowMs` that quarantine a node. Default 3. */
  readonly maxLosses?: number;
  /** Time in which losses count together. Default 600 000. */
  readonly windowMs?: number;
  /** Length of the first quarantine. Each further quarantine is twice as long. Default 600 000. */
  readonly firstMs?: number;
  /** Longest quarantine. Default 86 400 000, a day. */
  readonly maxMs?: number;
}

/**
 * Keeps new replicas off nodes that are lost repeatedly. Never delays the replacement of lost
 * replicas. The lengths start over with `firstMs` when a node was stable for as long as its
 * last quarantine: neither in quarantine nor lost for that time. Every `nowMs` is monotonic
 * milliseconds of the caller's clock.
 */
export interface Quarantine {
  /** Records a loss of a node, whatever its cause. */
  recordLoss(nodeId: NodeId, nowMs: number): void;
  /** Returns the time at which the current quarantine ends; undefined without a quarantine. */
  quarantinedUntil(nodeId: NodeId, nowMs: number): number | undefined;
  /**
   * Ends the quarantine and deletes the recorded losses. Called when the node was deleted.
   */
  forget(nodeId: NodeId): void;
}

interface LossHistory {
  /** Times of the losses within the window that led to no quarantine yet. */
  losses: number[];
  /** Number of quarantines since the lengths started over. */
  quarantines: number;
  /** Length of the last quarantine; 0 before the first. */
  lastLengthMs: number;
  /** End of the last quarantine. */
  untilMs: number;
  /** Time of the last loss. */
  lastLossMs: number;
}

/** Creates a quarantine in which no node is. */
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
