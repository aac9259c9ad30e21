import { describeRequirements, matchesAll } from '../input/labels.js';
import { AVAILABILITY_ORDER, describeDomain, hasCapability } from '../input/node.js';
import type { NodeTerm } from '../input/request.js';
import { describeTaint, isTolerated } from '../input/taints.js';
import { smallest } from '../order.js';
import { describeMissingCapability, describeSuspendedCapability } from './capability-words.js';
import type { FilterNode, FilterRequest, NodeFilter } from './filter.js';
import type { Failure } from './reasons.js';

/** Excludes lost, unreachable, draining, cordoned and quarantined nodes; reports the gravest. */
export const availability: NodeFilter = {
  names: AVAILABILITY_ORDER,
  check: ({ node: { unavailable } }) => unavailable && { filter: unavailable },
  listAll: ({ node: { node } }) =>
    AVAILABILITY_ORDER.filter((condition) => node.availability?.[condition] === true).map(
      (filter) => ({ filter }),
    ),
  explain: ({ filter }) => `the node is ${filter === 'draining' ? 'being drained' : filter}`,
  summarise: ({ filter }) => (filter === 'draining' ? 'being drained' : filter),
  isLasting: () => false,
};

/** Excludes nodes outside the requested regions and zones, unless the locality is `preferred`. */
export const locality: NodeFilter = {
  names: ['region', 'zone'],
  check: (candidate, run) => listLocalityFailures(candidate, run)[0],
  listAll: listLocalityFailures,
  explain: ({ filter }, { node }, { request: { regions, zones } }) =>
    filter === 'region'
      ? `is in ${describeDomain(node, 'region')}, needs ${describeAlternatives(regions)}`
      : `is in ${describeDomain(node, 'zone')}, needs ${describeAlternatives([...zones].sort())}`,
  summarise: ({ filter }, _node, { request: { regions, zones } }) =>
    filter === 'region'
      ? describeExclusion('region', regions)
      : describeExclusion('zone', [...zones].sort()),
  isLasting: () => true,
};

function listLocalityFailures(
  { node }: FilterNode,
  { request: { locality: mode, regions, zones } }: FilterRequest,
): readonly Failure[] {
  if (mode === 'preferred') return NO_FAILURES;
  const isElsewhere = regions.length > 0 && !regions.includes(node.region);
  const isInOtherZone = zones.length > 0 && !zones.includes(node.zone);
  if (!isElsewhere && !isInOtherZone) return NO_FAILURES;
  return [
    ...(isElsewhere ? [{ filter: 'region' } as const] : []),
    ...(isInOtherZone ? [{ filter: 'zone' } as const] : []),
  ];
}

const NO_FAILURES: readonly Failure[] = [];

/** Excludes nodes that lack a capability of the request. */
export const capabilities: NodeFilter = createFilter({
  filter: 'capability',
  listDetails: ({ node }, { request }) =>
    request.capabilities.filter((capability) => !hasCapability(node, capability)),
  explain: (capability, { node }) => describeMissingCapability(capability, node.hostPaths),
  isLasting: true,
});

/** Excludes nodes on which a needed capability is suspended. Replicas that run there stay. */
export const suspendedCapabilities: NodeFilter = createFilter({
  filter: 'suspendedCapability',
  listDetails: ({ node }, { request }) =>
    request.capabilities.filter(
      (capability) =>
        node.capabilities.has(capability) && node.suspendedCapabilities.has(capability),
    ),
  explain: (capability, { node: { node } }) =>
    node.suspensionReason ?? describeSuspendedCapability(capability),
  isLasting: false,
});

/** Excludes nodes without the labels and values of the node selector. */
export const nodeSelector: NodeFilter = createFilter({
  filter: 'nodeSelector',
  listDetails: ({ node: { labels } }, { request }) =>
    Object.entries(request.nodeSelector)
      .filter(([key, value]) => labels.get(key) !== value)
      .map(([key, value]) => `${key}=${value}`),
  explain: (label) => `lacks the label ${label}`,
  isLasting: true,
});

/** Excludes nodes that a required node affinity term does not match. */
export const nodeAffinity: NodeFilter = createFilter({
  filter: 'nodeAffinity',
  listDetails: ({ node: { labels } }, { request }) =>
    describeRequired(request.nodeAffinity.filter((term) => !matchesAll(term.requirements, labels))),
  explain: (term) => `does not meet ${term}`,
  isLasting: true,
});

/** Excludes nodes that a required node anti-affinity term matches. */
export const nodeAntiAffinity: NodeFilter = createFilter({
  filter: 'nodeAntiAffinity',
  listDetails: ({ node: { labels } }, { request }) =>
    describeRequired(
      request.nodeAntiAffinity.filter((term) => matchesAll(term.requirements, labels)),
    ),
  explain: (term) => `matches the anti-affinity ${term}`,
  isLasting: true,
});

/** Excludes nodes with an untolerated NoSchedule or NoExecute taint. */
export const taints: NodeFilter = createFilter({
  filter: 'taint',
  listDetails: ({ node }, { request: { tolerations } }) =>
    node.taints
      .filter((taint) => taint.effect !== 'PreferNoSchedule' && !isTolerated(taint, tolerations))
      .map(describeTaint),
  explain: (taint) => `has the taint ${taint}, which is not tolerated`,
  isLasting: true,
});

/** A filter over a list of items that each fail with a detail. */
interface ListFilter {
  readonly filter: Failure['filter'];
  /** Returns the texts of the failing items, in any order. */
  listDetails(node: FilterNode, run: FilterRequest): readonly string[];
  /** Describes one failing item in words. */
  explain(detail: string, node: FilterNode): string;
  readonly isLasting: boolean;
}

function createFilter({ filter, listDetails, explain, isLasting }: ListFilter): NodeFilter {
  return {
    names: [filter],
    check: (node, run) => {
      const detail = smallest(listDetails(node, run));
      return detail === undefined ? undefined : { filter, detail };
    },
    listAll: (node, run) => {
      const details = listDetails(node, run);
      const unique = details.length > 1 ? [...new Set(details)].sort() : details;
      return unique.map((detail) => ({ filter, detail }));
    },
    explain: ({ detail = '' }, node) => explain(detail, node),
    summarise: ({ detail = '' }, node) => explain(detail, node),
    isLasting: () => isLasting,
  };
}

/** Returns the texts of the required ones of these terms. */
function describeRequired(terms: readonly NodeTerm[]): readonly string[] {
  return terms
    .filter((term) => term.mode === 'required')
    .map((term) => describeRequirements(term.requirements));
}

function describeAlternatives(names: readonly string[]): string {
  return names.length === 1 ? names.join() : `one of ${names.join(', ')}`;
}

function describeExclusion(domain: 'region' | 'zone', names: readonly string[]): string {
  return names.length === 1
    ? `not in ${domain} ${names.join()}`
    : `in none of the ${domain}s ${names.join(', ')}`;
}
