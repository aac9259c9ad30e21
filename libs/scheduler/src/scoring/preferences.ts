import { hasReplica, type DomainCount, type TermMatches } from '../filters/workload-terms.js';
import { matchesAll } from '../input/labels.js';
import type { IndexedNode } from '../input/node.js';
import type { FullRequest } from '../input/request.js';
import { isTolerated } from '../input/taints.js';
import type { Preferences } from './score.js';

/** Sums the preferences that only the node and the request decide, which no placement changes. */
export function sumFixedPreferences(
  { labels, taints }: IndexedNode,
  { nodeAffinity, nodeAntiAffinity, tolerations }: FullRequest,
): Preferences {
  const sumWeights = (terms: FullRequest['nodeAffinity']): number =>
    terms.reduce(
      (sum, term) =>
        sum +
        (term.mode === 'preferred' && matchesAll(term.requirements, labels) ? term.weight : 0),
      0,
    );
  return {
    affinityWeight: sumWeights(nodeAffinity),
    antiAffinityWeight: sumWeights(nodeAntiAffinity),
    untoleratedTaints: taints.filter(
      (taint) => taint.effect === 'PreferNoSchedule' && !isTolerated(taint, tolerations),
    ).length,
  };
}

/** Sums the weights of preferred terms that match a replica in the node's domain. */
export function sumMatchingWeights(
  matches: readonly TermMatches[],
  domains: readonly (DomainCount | undefined)[],
): number {
  return matches.reduce(
    (sum, { term }, index) =>
      sum + (term.mode === 'preferred' && hasReplica(domains[index]) ? term.weight : 0),
    0,
  );
}
