import { describeRequirements, matchesAll } from '../input/labels.js';
import { describeDomain } from '../input/node.js';
import type { NodeTerm } from '../input/request.js';
import { describeTaint, isTolerated } from '../input/taints.js';
import { smallest } from '../order.js';
import type { NodeFilter } from './filter.js';
import type { Failure } from './reasons.js';

/** Excludes nodes that are lost, draining, cordoned or quarantined. Reports the gravest state. */
export const availability: NodeFilter = {
  names: ['lost', 'draining', 'cordoned', 'quarantined'],
  check: ({ node: { unavailable } }) => unavailable && { filter: unavailable },
  explain: ({ filter }) => `the node is ${filter === 'draining' ? 'being drained' : filter}`,
};

/** Excludes nodes outside the requested regions and zones, unless the locality is `preferred`. */
export const locality: NodeFilter = {
  names: ['region', 'zone'],
  check: ({ node }, { request: { locality: mode, regions, zones } }) => {
    if (mode === 'preferred') return undefined;
    if (regions.length > 0 && !regions.includes(node.region)) return { filter: 'region' };
    return zones.length > 0 && !zones.includes(node.zone) ? { filter: 'zone' } : undefined;
  },
  explain: ({ filter }, { node }, { request: { regions, zones } }) =>
    filter === 'region'
      ? `is in ${describeDomain(node, 'region')}, needs ${describeAlternatives(regions)}`
      : `is in ${describeDomain(node, 'zone')}, needs ${describeAlternatives([...zones].sort())}`,
};

/** Excludes nodes that lack a capability of the request. */
export const capabilities: NodeFilter = {
  names: ['capability'],
  check: ({ node }, { request }) =>
    createFailure(
      'capability',
      request.capabilities.filter((capability) => !node.capabilities.has(capability)),
    ),
  explain: ({ detail = '' }) => `lacks the capability ${detail}`,
};

/** Excludes nodes on which a needed capability is suspended. Replicas that run there stay. */
export const suspendedCapabilities: NodeFilter = {
  ...capabilities,
  check: ({ node }, { request }) =>
    createFailure(
      'capability',
      request.capabilities
        .filter((capability) => node.suspendedCapabilities.has(capability))
        .map((capability) => `${capability} (unavailable at the moment)`),
    ),
};

/** Excludes nodes without the labels and values of the node selector. */
export const nodeSelector: NodeFilter = {
  names: ['nodeSelector'],
  check: ({ node: { labels } }, { request }) => {
    const missing = Object.entries(request.nodeSelector).filter(
      ([key, value]) => labels.get(key) !== value,
    );
    return createFailure(
      'nodeSelector',
      missing.map(([key, value]) => `${key}=${value}`),
    );
  },
  explain: ({ detail = '' }) => `lacks the label ${detail}`,
};

/** Excludes nodes that a required node affinity term does not match. */
export const nodeAffinity: NodeFilter = {
  names: ['nodeAffinity'],
  check: ({ node: { labels } }, { request }) =>
    failOnTerms(
      'nodeAffinity',
      request.nodeAffinity.filter((term) => !matchesAll(term.requirements, labels)),
    ),
  explain: ({ detail = '' }) => `does not meet ${detail}`,
};

/** Excludes nodes that a required node anti-affinity term matches. */
export const nodeAntiAffinity: NodeFilter = {
  names: ['nodeAntiAffinity'],
  check: ({ node: { labels } }, { request }) =>
    failOnTerms(
      'nodeAntiAffinity',
      request.nodeAntiAffinity.filter((term) => matchesAll(term.requirements, labels)),
    ),
  explain: ({ detail = '' }) => `matches the anti-affinity ${detail}`,
};

/** Excludes nodes with an untolerated NoSchedule or NoExecute taint. */
export const taints: NodeFilter = {
  names: ['taint'],
  check: ({ node }, { request: { tolerations } }) => {
    const repelling = node.taints.filter(
      (taint) => taint.effect !== 'PreferNoSchedule' && !isTolerated(taint, tolerations),
    );
    return createFailure('taint', repelling.map(describeTaint));
  },
  explain: ({ detail = '' }) => `has the taint ${detail}, which is not tolerated`,
};

/** Returns a failure when one of `unmetTerms` is required. */
function failOnTerms(
  filter: 'nodeAffinity' | 'nodeAntiAffinity',
  unmetTerms: readonly NodeTerm[],
): Failure | undefined {
  const required = unmetTerms.filter((term) => term.mode === 'required');
  return createFailure(
    filter,
    required.map((term) => describeRequirements(term.requirements)),
  );
}

/** Returns a failure with the alphabetically first detail; undefined when there are none. */
function createFailure(filter: Failure['filter'], details: readonly string[]): Failure | undefined {
  const detail = smallest(details);
  return detail === undefined ? undefined : { filter, detail };
}

function describeAlternatives(names: readonly string[]): string {
  return names.length === 1 ? names.join() : `one of ${names.join(', ')}`;
}
