import { describeRequirements, matchesAll } from '../input/labels.js';
import type { IndexedNode } from '../input/node.js';
import { smallest } from '../order.js';
import type { Failure } from './reasons.js';
import type { FullRequest, NodeTerm } from '../input/request.js';
import { findShortage, NO_RESOURCES } from '../input/resources.js';
import type { Preferences } from '../scoring/score.js';
import { describeTaint, isTolerated } from '../input/taints.js';

type Filter = (record: IndexedNode, request: FullRequest) => Failure | undefined;

/** Filters that a replica on the node must also meet to stay there, in the order of the reasons. */
const STAY_FILTERS: readonly Filter[] = [
  checkLocality,
  checkCapabilities,
  checkNodeSelector,
  checkNodeAffinity,
  checkNodeAntiAffinity,
];
/** Filters that depend only on the node and the request, in the order of the reasons. */
const NODE_FILTERS: readonly Filter[] = [
  checkAvailability,
  ...STAY_FILTERS,
  checkSuspendedCapabilities,
  checkNodeTaints,
];

/**
 * Returns the first failure among the filters that depend only on the node and the request. When
 * several items of one filter fail, the alphabetically first is reported.
 */
export function nodeFailure(record: IndexedNode, request: FullRequest): Failure | undefined {
  for (const filter of NODE_FILTERS) {
    const failure = filter(record, request);
    if (failure !== undefined) return failure;
  }
  return undefined;
}

/**
 * Returns true when a replica that is on the node may stay: the node matches the region, zone,
 * capabilities and labels of the request, and has no untolerated NoExecute taint.
 */
export function canStay(record: IndexedNode, request: FullRequest): boolean {
  if (STAY_FILTERS.some((filter) => filter(record, request) !== undefined)) return false;
  return record.taints.every(
    (taint) => taint.effect !== 'NoExecute' || isTolerated(taint, request.tolerations),
  );
}

/** Returns true when the node could hold one replica if it held nothing else. */
export function fitsWhenEmpty(record: IndexedNode, { resources }: FullRequest): boolean {
  return (
    record.maxReplicas > 0 &&
    findShortage(resources, record.allocatable, NO_RESOURCES) === undefined
  );
}

/** Sums the preferences that only the node and the request decide. */
export function sumFixedPreferences(
  { labels, taints }: IndexedNode,
  request: FullRequest,
): Preferences {
  const weightOf = (terms: FullRequest['nodeAffinity']): number =>
    terms.reduce(
      (sum, term) =>
        sum +
        (term.mode === 'preferred' && matchesAll(term.requirements, labels) ? term.weight : 0),
      0,
    );
  return {
    affinityWeight: weightOf(request.nodeAffinity),
    antiAffinityWeight: weightOf(request.nodeAntiAffinity),
    untoleratedTaints: taints.filter(
      (taint) => taint.effect === 'PreferNoSchedule' && !isTolerated(taint, request.tolerations),
    ).length,
  };
}

function checkAvailability({ unavailable }: IndexedNode): Failure | undefined {
  return unavailable && { filter: unavailable };
}

function checkLocality(
  record: IndexedNode,
  { locality: mode, regions, zones }: FullRequest,
): Failure | undefined {
  if (mode === 'preferred') return undefined;
  if (regions.length > 0 && !regions.includes(record.region)) return { filter: 'region' };
  return zones.length > 0 && !zones.includes(record.zone) ? { filter: 'zone' } : undefined;
}

function checkCapabilities(record: IndexedNode, request: FullRequest): Failure | undefined {
  return createFailure(
    'capability',
    request.capabilities.filter((capability) => !record.capabilities.has(capability)),
  );
}

/** Excludes nodes on which a needed capability is suspended. Replicas that run there stay. */
function checkSuspendedCapabilities(
  record: IndexedNode,
  request: FullRequest,
): Failure | undefined {
  return createFailure(
    'capability',
    request.capabilities
      .filter((capability) => record.suspendedCapabilities.has(capability))
      .map((capability) => `${capability} for now`),
  );
}

function checkNodeSelector({ labels }: IndexedNode, request: FullRequest): Failure | undefined {
  const missing = Object.entries(request.nodeSelector).filter(
    ([key, value]) => labels.get(key) !== value,
  );
  return createFailure(
    'nodeSelector',
    missing.map(([key, value]) => `${key}=${value}`),
  );
}

function checkNodeAffinity({ labels }: IndexedNode, request: FullRequest): Failure | undefined {
  return failOnTerms(
    'nodeAffinity',
    request.nodeAffinity.filter((term) => !matchesAll(term.requirements, labels)),
  );
}

function checkNodeAntiAffinity({ labels }: IndexedNode, request: FullRequest): Failure | undefined {
  return failOnTerms(
    'nodeAntiAffinity',
    request.nodeAntiAffinity.filter((term) => matchesAll(term.requirements, labels)),
  );
}

function checkNodeTaints(record: IndexedNode, { tolerations }: FullRequest): Failure | undefined {
  const repelling = record.taints.filter(
    (taint) => taint.effect !== 'PreferNoSchedule' && !isTolerated(taint, tolerations),
  );
  return createFailure('taint', repelling.map(describeTaint));
}

function failOnTerms(
  filter: 'nodeAffinity' | 'nodeAntiAffinity',
  broken: readonly NodeTerm[],
): Failure | undefined {
  const required = broken.filter((term) => term.mode === 'required');
  return createFailure(
    filter,
    required.map((term) => describeRequirements(term.requirements)),
  );
}

function createFailure(filter: Failure['filter'], details: readonly string[]): Failure | undefined {
  const detail = smallest(details);
  return detail === undefined ? undefined : { filter, detail };
}
