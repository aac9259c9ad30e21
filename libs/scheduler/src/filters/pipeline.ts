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
import { compareReasons, type Failure, type NodeReason } from './reasons.js';
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
 * All filters in the order in which they are checked: conditions that no other replica can change
 * come first, then capacity, then conditions that depend on other replicas.
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

/**
 * Returns all failures of a candidate in words, the most telling first; empty when the candidate
 * fits.
 * @param wording - `node`: with the names and numbers of the node, for example `needs 500m CPU, 200m
 *   free`. `cluster`: without them, so that equal failures of several nodes have the same text.
 */
export function listReasons(
  candidate: FilterCandidate,
  run: FilterRun,
  wording: 'node' | 'cluster',
): readonly NodeReason[] {
  return FILTERS.flatMap((filter) => {
    const failures = filter.listAll?.(candidate, run) ?? [filter.check(candidate, run)];
    return failures.flatMap((failure): NodeReason[] => {
      if (failure === undefined) return [];
      const lasting = filter.isLasting(failure, candidate, run);
      const describe = wording === 'node' ? filter.explain : filter.summarise;
      return [{ ...failure, lasting, text: describe(failure, candidate, run) }];
    });
  }).sort(compareReasons);
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
