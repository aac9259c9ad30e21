import type { NodeId } from '@cloudless/base';

/**
 * Reliability of each node: the share of the last hour, or of the time since it joined when that is
 * shorter, in which the node was ready; 1 at first (CLD-REQ-021). The score is rounded to 1/32 and
 * changes at most every 10 s, so that placements do not follow noise and two coordinators with the
 * same observations agree. Every `nowMs` is monotonic milliseconds of the caller's clock.
 */
export interface Reliability {
  /**
   * Records that the node is ready or not ready from now on. The first record of a node is its
   * join. A repeated record changes nothing.
   */
  record(nodeId: NodeId, ready: boolean, nowMs: number): void;
  /** Returns the score, 0 to 1 in steps of 1/32; 1 for an unknown node. */
  score(nodeId: NodeId, nowMs: number): number;
  /** Deletes the history of a node. Its next record counts as a join. */
  forget(nodeId: NodeId): void;
}

/** Length of the evaluated past, milliseconds: an hour. */
const WINDOW_MS = 3_600_000;
/** Shortest time between two changes of a score. */
const MIN_CHANGE_INTERVAL_MS = 10_000;
/** Number of equal steps between the scores 0 and 1. */
const STEPS = 32;
/**
 * Most recorded outages of a node. Beyond that, the two oldest outages become one that includes the
 * ready time between them; a node with so many outages in an hour is unreliable in any case.
 */
const MAX_OUTAGES = 128;

/** A time in which a node was not ready, milliseconds. */
interface Outage {
  fromMs: number;
  /** Infinity while the outage lasts. */
  toMs: number;
}

interface ReadinessHistory {
  readonly joinedAtMs: number;
  outages: Outage[];
  score: number;
  changedAtMs: number;
}

/** Creates a reliability that knows no node. */
export function createReliability(): Reliability {
  const nodes = new Map<NodeId, ReadinessHistory>();
  return {
    record(nodeId, ready, nowMs) {
      let node = nodes.get(nodeId);
      if (node === undefined)
        nodes.set(
          nodeId,
          (node = { joinedAtMs: nowMs, outages: [], score: 1, changedAtMs: -Infinity }),
        );
      const last = node.outages.at(-1);
      const isOut = last?.toMs === Infinity;
      if (ready && isOut) last.toMs = nowMs;
      if (!ready && !isOut) node.outages.push({ fromMs: nowMs, toMs: Infinity });
      node.outages = mergeOldestOutages(
        node.outages.filter((outage) => outage.toMs > nowMs - WINDOW_MS),
      );
    },
    score(nodeId, nowMs) {
      const node = nodes.get(nodeId);
      if (node === undefined) return 1;
      const score = Math.round(computeReadyShare(node, nowMs) * STEPS) / STEPS;
      if (score !== node.score && nowMs - node.changedAtMs >= MIN_CHANGE_INTERVAL_MS) {
        node.score = score;
        node.changedAtMs = nowMs;
      }
      return node.score;
    },
    forget(nodeId) {
      nodes.delete(nodeId);
    },
  };
}

function computeReadyShare({ joinedAtMs, outages }: ReadinessHistory, nowMs: number): number {
  const fromMs = Math.max(joinedAtMs, nowMs - WINDOW_MS);
  if (nowMs <= fromMs) return 1;
  const outageMs = outages.reduce(
    (sum, outage) =>
      sum + Math.max(0, Math.min(outage.toMs, nowMs) - Math.max(outage.fromMs, fromMs)),
    0,
  );
  return 1 - outageMs / (nowMs - fromMs);
}

function mergeOldestOutages(outages: Outage[]): Outage[] {
  const [first, second, ...rest] = outages;
  if (outages.length <= MAX_OUTAGES || first === undefined || second === undefined) return outages;
  return [{ fromMs: first.fromMs, toMs: second.toMs }, ...rest];
}
