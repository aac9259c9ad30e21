import { describeRequirements, matchesAll } from './labels.js';
import type { NodeRecord } from './node.js';
import { firstText } from './order.js';
import type { Failure } from './reasons.js';
import type { FullRequest, NodeTerm } from './request.js';
import { firstShortage, NO_RESOURCES } from './resources.js';
import type { Preferences } from './score.js';
import { describeTaint, isTolerated } from './taints.js';

type Filter = (record: NodeRecord, request: FullRequest) => Failure | undefined;

/** Filters that a replica on the node must also meet to stay there, in the order of the reasons. */
const KIND_FILTERS: readonly Filter[] = [
  locality,
  capabilities,
  nodeSelector,
  nodeAffinity,
  nodeAntiAffinity,
];
/** Filters that depend only on the node and the request, in the order of the reasons. */
const NODE_FILTERS: readonly Filter[] = [availability, ...KIND_FILTERS, suspended, taints];

/**
 * Returns the first failure among the filters that depend only on the node and the request. When
 * several items of one filter fail, the alphabetically first is reported.
 */
export function nodeFailure(record: NodeRecord, request: FullRequest): Failure | undefined {
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
export function mayStay(record: NodeRecord, request: FullRequest): boolean {
  if (KIND_FILTERS.some((filter) => filter(record, request) !== undefined)) return false;
  return record.taints.every(
    (taint) => taint.effect !== 'NoExecute' || isTolerated(taint, request.tolerations),
  );
}

/** Returns true when the node could hold one replica if it held nothing else. */
export function couldEverHold(record: NodeRecord, { resources }: FullRequest): boolean {
  return (
    record.maxReplicas > 0 &&
    firstShortage(resources, record.allocatable, NO_RESOURCES) === undefined
  );
}

/** Sums the preferences that only the node and the request decide. */
export function fixedPreferences(
  { labels, taints }: NodeRecord,
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

function availability({ unavailable }: NodeRecord): Failure | undefined {
  return unavailable && { filter: unavailable };
}

function locality(
  record: NodeRecord,
  { locality: mode, regions, zones }: FullRequest,
): Failure | undefined {
  if (mode === 'preferred') return undefined;
  if (regions.length > 0 && !regions.includes(record.region)) return { filter: 'region' };
  return zones.length > 0 && !zones.includes(record.zone) ? { filter: 'zone' } : undefined;
}

function capabilities(record: NodeRecord, request: FullRequest): Failure | undefined {
  return fail(
    'capability',
    request.capabilities.filter((capability) => !record.capabilities.has(capability)),
  );
}

/** Excludes nodes on which a needed capability is suspended. Replicas that run there stay. */
function suspended(record: NodeRecord, request: FullRequest): Failure | undefined {
  return fail(
    'capability',
    request.capabilities
      .filter((capability) => record.suspendedCapabilities.has(capability))
      .map((capability) => `${capability} for now`),
  );
}

function nodeSelector({ labels }: NodeRecord, request: FullRequest): Failure | undefined {
  const missing = Object.entries(request.nodeSelector).filter(
    ([key, value]) => labels.get(key) !== value,
  );
  return fail(
    'nodeSelector',
    missing.map(([key, value]) => `${key}=${value}`),
  );
}

function nodeAffinity({ labels }: NodeRecord, request: FullRequest): Failure | undefined {
  return failTerms(
    'nodeAffinity',
    request.nodeAffinity.filter((term) => !matchesAll(term.requirements, labels)),
  );
}

function nodeAntiAffinity({ labels }: NodeRecord, request: FullRequest): Failure | undefined {
  return failTerms(
    'nodeAntiAffinity',
    request.nodeAntiAffinity.filter((term) => matchesAll(term.requirements, labels)),
  );
}

function taints(record: NodeRecord, { tolerations }: FullRequest): Failure | undefined {
  const repelling = record.taints.filter(
    (taint) => taint.effect !== 'PreferNoSchedule' && !isTolerated(taint, tolerations),
  );
  return fail('taint', repelling.map(describeTaint));
}

function failTerms(
  filter: 'nodeAffinity' | 'nodeAntiAffinity',
  broken: readonly NodeTerm[],
): Failure | undefined {
  const required = broken.filter((term) => term.mode === 'required');
  return fail(
    filter,
    required.map((term) => describeRequirements(term.requirements)),
  );
}

function fail(filter: Failure['filter'], details: readonly string[]): Failure | undefined {
  const detail = firstText(details);
  return detail === undefined ? undefined : { filter, detail };
}
