import type { FilterCandidate } from '../filters/filter.js';
import type { SchedulerHostPort } from '../input/host-ports.js';
import { compareNumbers, compareText } from '../order.js';
import type { Failure } from '../filters/reasons.js';
import type { Resources } from '../input/resources.js';
import type { Preferences, ScoreTerms } from '../scoring/score.js';
import type { DomainCount } from '../filters/workload-terms.js';

/** State of one node for one request during a call to `place` or `explain`. */
export interface Candidate extends FilterCandidate {
  /** First failure among the filters that depend only on the node and the request. */
  readonly nodeFailure: Failure | undefined;
  /**
   * Replicas of the workload in the node's zone, without leaving replicas. All nodes of the zone
   * share one object.
   */
  readonly inZone: DomainCount;
  /** The preferences that no placement changes. */
  readonly fixedPreferences: Preferences;
  allocated: Resources;
  replicas: number;
  heldPort: SchedulerHostPort | undefined;
  /** Replicas of the workload on the node, without leaving replicas. */
  onNode: number;
  /** First failure among all filters except the required spread; updated after placements. */
  failure: Failure | undefined;
  terms: ScoreTerms;
  score: number;
}

/** Count for nodes that are in no domain of the declared spread; such nodes come last. */
export const NO_DOMAIN: DomainCount = { count: Infinity };

/**
 * Orders candidates, best first: fewest replicas in the domain of the declared spread, then in the
 * zone, then on the node, then the highest score, then the node id.
 */
export function compareCandidates(a: Candidate, b: Candidate): number {
  return (
    compareNumbers(a.inSpread.count, b.inSpread.count) ||
    compareNumbers(a.inZone.count, b.inZone.count) ||
    compareNumbers(a.onNode, b.onNode) ||
    compareNumbers(b.score, a.score) ||
    compareText(a.node.id, b.node.id)
  );
}
