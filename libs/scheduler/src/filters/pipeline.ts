import { isTolerated } from '../input/taints.js';
import { hostPorts, maxReplicas, resources } from './capacity-filters.js';
import type {
  Filter,
  FilterCandidate,
  FilterNode,
  FilterRequest,
  FilterRun,
  NodeFilter,
} from './filter.js';
import {
  availability,
  capabilities,
  locality,
  nodeAffinity,
  nodeAntiAffinity,
  nodeSelector,
  suspendedCapabilities,
  taints,
} from './node-filters.js';
import type { Failure } from './reasons.js';
import { requiredSpread, workloadAffinity, workloadAntiAffinity } from './workload-filters.js';

/**
 * Filters that a node must meet for a new replica, and also for a replica that already runs there.
 */
const STAY_FILTERS: readonly NodeFilter[] = [
  locality,
  capabilities,
  nodeSelector,
  nodeAffinity,
  nodeAntiAffinity,
];

/** Filters that depend only on the node and the request. */
const NODE_FILTERS: readonly NodeFilter[] = [
  availability,
  ...STAY_FILTERS,
  suspendedCapabilities,
  taints,
];

/** Filters whose result a placement changes only on its own node and in its affinity domains. */
const CANDIDATE_FILTERS: readonly Filter[] = [
  maxReplicas,
  resources,
  hostPorts,
  workloadAffinity,
  workloadAntiAffinity,
];

/**
 * All filters in the order in which they are checked. A node is counted under its first failing
 * filter: conditions that no other replica can change come first, then capacity, then conditions
 * that depend on other replicas.
 */
export const FILTERS: readonly Filter[] = [...NODE_FILTERS, ...CANDIDATE_FILTERS, requiredSpread];

/** Returns the first failure among the filters that depend only on the node and the request. */
export function findNodeFailure(node: FilterNode, run: FilterRequest): Failure | undefined {
  return findFailure(NODE_FILTERS, node, run);
}

/**
 * Returns the first failure among the filters that depend on reservations and other replicas, but
 * for the required spread, which every placement may change.
 */
export function findCandidateFailure(
  candidate: FilterCandidate,
  run: FilterRun,
): Failure | undefined {
  return findFailure(CANDIDATE_FILTERS, candidate, run);
}

/**
 * Returns true when a replica that is on the node may stay: the node matches the region, zone,
 * capabilities and labels of the request, and has no untolerated NoExecute taint.
 */
export function canStay({ node }: FilterNode, run: FilterRequest): boolean {
  if (findFailure(STAY_FILTERS, { node }, run) !== undefined) return false;
  return node.taints.every(
    (taint) => taint.effect !== 'NoExecute' || isTolerated(taint, run.request.tolerations),
  );
}

/** Describes a failure on one node, for example `needs 500 m CPU, 200 m free`. */
export function explainFailure(
  failure: Failure,
  candidate: FilterCandidate,
  run: FilterRun,
): string {
  const filter = FILTERS.find(({ names }) => names.includes(failure.filter));
  return filter?.explain(failure, candidate, run) ?? failure.filter;
}

function findFailure<Node extends FilterNode, Run extends FilterRequest>(
  filters: readonly Filter<Node, Run>[],
  node: Node,
  run: Run,
): Failure | undefined {
  for (const filter of filters) {
    const failure = filter.check(node, run);
    if (failure !== undefined) return failure;
  }
  return undefined;
}
