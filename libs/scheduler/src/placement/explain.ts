import type { NodeId } from '@cloudless/base';
import { listReasons } from '../filters/pipeline.js';
import type { NodeReason } from '../filters/reasons.js';
import { compareNumbers, compareText } from '../order.js';
import type { ScoreTerms } from '../scoring/score.js';
import { compareCandidates, type Candidate } from './candidate.js';
import type { PlacementRun } from './placement-run.js';

/** Result of all filters and scores for one node and one request. */
export type NodeExplanation = NodeExplanationBase & (NodeFits | NodeDoesNotFit);

interface NodeExplanationBase {
  readonly nodeId: NodeId;
  readonly score: number;
  readonly terms: ScoreTerms;
  /**
   * Replicas of the workload, without leaving replicas. Fewer replicas rank before a better score.
   */
  readonly workloadReplicas: {
    readonly onNode: number;
    readonly inZone: number;
    /**
     * Count of the node's domain of the declared spread. Absent without a declared spread and for a
     * node in no domain.
     */
    readonly inSpreadDomain?: number;
  };
}

interface NodeFits {
  readonly fits: true;
}

interface NodeDoesNotFit {
  readonly fits: false;
  /** All filters that fail, the most telling first. At least one. */
  readonly reasons: readonly NodeReason[];
}

/**
 * Returns every node: nodes that fit in the order in which `place` would choose them, then the
 * others by score and id.
 */
export function explainNodes(run: PlacementRun): NodeExplanation[] {
  const failures = run.listFailures();
  const entries = run.candidates.map((candidate, index) => ({
    candidate,
    failure: failures[index],
  }));
  entries.sort((a, b) => {
    if ((a.failure === undefined) !== (b.failure === undefined))
      return a.failure === undefined ? -1 : 1;
    if (a.failure === undefined) return compareCandidates(a.candidate, b.candidate);
    return (
      compareNumbers(b.candidate.score, a.candidate.score) ||
      compareText(a.candidate.node.id, b.candidate.node.id)
    );
  });
  return entries.map(({ candidate, failure }) => ({
    ...describeNode(run, candidate),
    ...(failure === undefined
      ? { fits: true as const }
      : {
          fits: false as const,
          reasons: listReasons(candidate, run),
        }),
  }));
}

function describeNode(
  { request }: PlacementRun,
  { node, score, terms, onNode, inZone, inSpread }: Candidate,
): NodeExplanationBase {
  const inSpreadDomain =
    request.spread !== undefined && Number.isFinite(inSpread.count)
      ? { inSpreadDomain: inSpread.count }
      : {};
  return {
    nodeId: node.id,
    score,
    terms,
    workloadReplicas: { onNode, inZone: inZone.count, ...inSpreadDomain },
  };
}
