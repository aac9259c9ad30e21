import { describeRequirements } from '../input/labels.js';
import { describeDomain } from '../input/node.js';
import { smallest } from '../order.js';
import type { Filter, FilterCandidate, FilterRun } from './filter.js';
import { hasReplica, isRequired, satisfiesAffinity, type TermMatches } from './workload-terms.js';

/** Excludes nodes whose domain has no replica for a required affinity term. */
export const workloadAffinity: Filter = {
  names: ['workloadAffinity'],
  check: ({ affinityDomains }, { affinity }) => {
    const unmet = affinity.filter(
      (matches, index) =>
        isRequired(matches) && !satisfiesAffinity(matches, affinityDomains[index]),
    );
    const detail = smallest(unmet.map(({ term }) => term.topology));
    return detail === undefined ? undefined : { filter: 'workloadAffinity', detail };
  },
  explain: ({ detail: topology = '' }, { node }, { affinity }) =>
    `needs a replica of ${describeSelectors(affinity, topology)} in the same ${topology}, none in ${describeDomain(node, topology)}`,
  summarise: ({ detail: topology = '' }, _node, { affinity }) =>
    `no replica of ${describeSelectors(affinity, topology)} in the same ${topology}`,
  isLasting: () => false,
};

/**
 * Excludes nodes whose domain has a replica that a required anti-affinity term of the request
 * matches, or a replica with a term that matches the request.
 */
export const workloadAntiAffinity: Filter = {
  names: ['workloadAntiAffinity'],
  check: ({ antiAffinityDomains, excludedBy }, { antiAffinity }) => {
    const topologies = antiAffinity
      .filter((matches, index) => isRequired(matches) && hasReplica(antiAffinityDomains[index]))
      .map(({ term }) => term.topology);
    const detail = smallest(excludedBy === undefined ? topologies : [...topologies, excludedBy]);
    return detail === undefined ? undefined : { filter: 'workloadAntiAffinity', detail };
  },
  explain: ({ detail: topology = '' }, { node, excludedBy }, { antiAffinity }) => {
    const domain = describeDomain(node, topology);
    return excludedBy === topology
      ? `the anti-affinity of a replica in ${domain} excludes this workload`
      : `anti-affinity to ${describeSelectors(antiAffinity, topology)}, which has a replica in ${domain}`;
  },
  summarise: ({ detail: topology = '' }) => `anti-affinity to a replica in the same ${topology}`,
  isLasting: () => false,
};

/** Excludes nodes whose domain is full under a required spread, and nodes in no domain. */
export const requiredSpread: Filter = {
  names: ['spread'],
  check: (candidate, run) =>
    exceedsSpread(candidate, run)
      ? { filter: 'spread', detail: run.request.spread?.topology ?? '' }
      : undefined,
  explain: (_failure, { node, inSpread }, { request, spreadCeiling = 0 }) => {
    const { topology, maxSkew } = request.spread ?? { topology: '', maxSkew: 1 };
    const domain = describeDomain(node, topology);
    if (!Number.isFinite(inSpread.count)) return `is in ${domain}, but the spread requires one`;
    const emptiest = spreadCeiling - maxSkew;
    return `replicas: ${inSpread.count} in ${domain}, ${emptiest} in the emptiest ${topology}; they may differ by ${maxSkew}`;
  },
  summarise: ({ detail: topology = '' }, { inSpread }) =>
    Number.isFinite(inSpread.count)
      ? `the spread over ${topology} allows no further replica`
      : `in no ${topology}, but the spread requires one`,
  isLasting: (_failure, { inSpread }) => !Number.isFinite(inSpread.count),
};

/**
 * Returns true when the node's domain is full under a required spread. Always true for a node in no
 * domain, whose count is Infinity.
 */
export function exceedsSpread(
  { inSpread }: Pick<FilterCandidate, 'inSpread'>,
  { spreadCeiling }: Pick<FilterRun, 'spreadCeiling'>,
): boolean {
  return spreadCeiling !== undefined && inSpread.count >= spreadCeiling;
}

function describeSelectors(matches: readonly TermMatches[], topology: string): string {
  return matches
    .filter(({ term }) => term.mode === 'required' && term.topology === topology)
    .map(({ term }) => describeRequirements(term.selector))
    .sort()
    .join(' and ');
}
