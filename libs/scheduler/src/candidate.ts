import type { HostPort } from './host-ports.js';
import type { NodeRecord } from './node.js';
import { compareNumbers, compareText } from './order.js';
import type { Failure } from './reasons.js';
import type { Resources } from './resources.js';
import type { Preferences, ScoreTerms } from './score.js';
import type { DomainCount } from './workload-terms.js';

/** One node as it looks to one request, while a call to `place` or `explain` lasts. */
export interface Candidate {
  readonly record: NodeRecord;
  /** Failure of a filter that no placement changes. */
  readonly nodeFailure: Failure | undefined;
  /** A topology in which replicas placed before forbid the node to this workload. */
  readonly forbiddenBy: string | undefined;
  /** Replicas of the workload in the node's zone that stay; shared by the nodes of the zone. */
  readonly inZone: DomainCount;
  /**
   * The same in the node's domain of the declared spread; one shared count of 0 when none is
   * declared.
   */
  readonly inSpread: DomainCount;
  /**
   * The node's domain for each term of workload affinity and anti-affinity, in the order of the
   * request.
   */
  readonly affinityDomains: readonly (DomainCount | undefined)[];
  readonly antiAffinityDomains: readonly (DomainCount | undefined)[];
  /**
   * Sums of weights of preferred node affinity and anti-affinity, and taints: what of the
   * preferences is fixed.
   */
  readonly fixedPreferences: Preferences;
  /** Booked on the node, with what this call has placed there. */
  allocated: Resources;
  replicas: number;
  /**
   * A host port of the request that is held on the node, by what was there or by what this call has
   * placed.
   */
  takenPort: HostPort | undefined;
  /** Replicas of the workload on the node that stay. */
  onNode: number;
  /** Failure of any filter but spread; kept up to date. */
  failure: Failure | undefined;
  terms: ScoreTerms;
  score: number;
}

/** The count of nodes that are in no domain of the declared spread: fuller than any. */
export const NO_DOMAIN: DomainCount = { count: Infinity };

/**
 * Best first: the emptiest domain of the declared spread, the emptiest zone, the emptiest node, the
 * score, the id.
 */
export function compareCandidates(a: Candidate, b: Candidate): number {
  return (
    compareNumbers(a.inSpread.count, b.inSpread.count) ||
    compareNumbers(a.inZone.count, b.inZone.count) ||
    compareNumbers(a.onNode, b.onNode) ||
    compareNumbers(b.score, a.score) ||
    compareText(a.record.id, b.record.id)
  );
}
