import { describeRequirements, matchesAll } from './labels.js';
import type { NodeRecord } from './node.js';
import { firstText } from './order.js';
import type { Failure } from './reasons.js';
import type { FullRequest, NodeTerm } from './request.js';
import { firstShortage, NO_RESOURCES } from './resources.js';
import type { Preferences } from './score.js';
import { describeTaint, isTolerated } from './taints.js';

type Filter = (record: NodeRecord, request: FullRequest) => Failure | undefined;

/** What a node is. In the order of the reasons. */
const KIND_FILTERS: readonly Filter[] = [
  locality,
  capabilities,
  nodeSelector,
  nodeAffinity,
  nodeAntiAffinity,
];
/**
 * What no replica and no placement changes: the node itself and the request decide. In the order of
 * the reasons.
 */
const NODE_FILTERS: readonly Filter[] = [availability, ...KIND_FILTERS, suspended, taints];

/**
 * The first of the filters over the node alone that fails; where several things of one kind fail,
 * the first by text.
 */
export function nodeFailure(record: NodeRecord, request: FullRequest): Failure | undefined {
  for (const filter of NODE_FILTERS) {
    const failure = filter(record, request);
    if (failure !== undefined) return failure;
  }
  return undefined;
}

/**
 * Whether a replica that is on the node may stay: the node is of the kind that is asked for and
 * evicts nobody by a taint.
 */
export function mayStay(record: NodeRecord, request: FullRequest): boolean {
  if (KIND_FILTERS.some((filter) => filter(record, request) !== undefined)) return false;
  return record.taints.every(
    (taint) => taint.effect !== 'NoExecute' || isTolerated(taint, request.tolerations),
  );
}

/** Whether the node, empty, would have room for one replica. */
export function couldEverHold(record: NodeRecord, { resources }: FullRequest): boolean {
  return (
    record.maxReplicas > 0 &&
    firstShortage(resources, record.allocatable, NO_RESOURCES) === undefined
  );
}

/** What the request prefers and the node alone decides. */
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

/**
 * Excludes nodes whose capability is suspended from new placements; replicas that run there stay.
 */
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
