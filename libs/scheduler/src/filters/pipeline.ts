import { isTolerated } from '../input/taints.js';
import { customResources, hostPorts, maxReplicas, resources } from './capacity-filters.js';
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
import {
  compareCounts,
  compareReasons,
  type Failure,
  type NodeReason,
  type PlacementFilter,
  type PlacementReason,
} from './reasons.js';
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

/** Filters that fail because replicas hold what the request needs, which an eviction ends. */
const CAPACITY_FILTERS: readonly Filter[] = [maxReplicas, resources, customResources, hostPorts];

const AFFINITY_FILTERS: readonly Filter[] = [workloadAffinity, workloadAntiAffinity];

/** Filters whose result is equal on all nodes of a class: see `NodeClasses`. */
const CLASS_FILTERS: readonly NodeFilter[] = [
  availability,
  locality,
  capabilities,
  suspendedCapabilities,
  taints,
];

/** Filters whose result a placement changes only on its own node and in its affinity domains. */
const CANDIDATE_FILTERS: readonly Filter[] = [...CAPACITY_FILTERS, ...AFFINITY_FILTERS];

/**
 * All filters in the order in which they are checked: conditions that no other replica can change
 * come first, then capacity, then conditions that depend on other replicas.
 */
export const FILTERS: readonly Filter[] = [...NODE_FILTERS, ...CANDIDATE_FILTERS, requiredSpread];

/** Returns the first failure among the filters that depend only on the node and the request. */
export function findNodeFailure(node: FilterNode, run: FilterRequest): Failure | undefined {
  return findFailure(NODE_FILTERS, node, run);
}

/** Returns true when the filters allow every node of the class that `node` belongs to. */
export function allowsClass(node: FilterNode, run: FilterRequest): boolean {
  return findFailure(CLASS_FILTERS, node, run) === undefined;
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
 * Returns all failures of a candidate in words, with the names and numbers of the node, the most
 * telling first; empty when the candidate fits.
 */
export function listReasons(candidate: FilterCandidate, run: FilterRun): readonly NodeReason[] {
  const reasons: NodeReason[] = [];
  visitFailures(candidate, run, (filter, failure) => {
    const lasting = filter.isLasting(failure, candidate, run);
    reasons.push({ ...failure, lasting, text: filter.explain(failure, candidate, run) });
  });
  return reasons.sort(compareReasons);
}

/**
 * Counts the failures of all candidates, in words without the names and numbers of single nodes. A
 * text is made once for all nodes with the same failure, as a refusal may concern 1 000 nodes.
 */
export function countReasons(
  candidates: readonly FilterCandidate[],
  run: FilterRun,
): readonly PlacementReason[] {
  return countReasonsOfGroups(
    candidates.map((example) => ({ example, count: 1 })),
    run,
  );
}

/**
 * Counts the failures of groups of nodes, as {@link countReasons} does. On all nodes of a group, the
 * same filters must fail for the same reasons.
 */
export function countReasonsOfGroups(
  groups: readonly { readonly example: FilterCandidate; readonly count: number }[],
  run: FilterRun,
): readonly PlacementReason[] {
  const of = groups.reduce((sum, { count }) => sum + count, 0);
  const counts = new Map<
    PlacementFilter,
    Map<string, { -readonly [Key in keyof PlacementReason]: PlacementReason[Key] }>[]
  >();
  for (const { example, count: nodes } of groups)
    visitFailures(example, run, (filter, failure) => {
      const lasting = filter.isLasting(failure, example, run);
      const ofFilter = counts.get(failure.filter) ?? [new Map(), new Map()];
      counts.set(failure.filter, ofFilter);
      const byDetail = ofFilter[lasting ? 1 : 0];
      const count = byDetail?.get(failure.detail ?? '');
      if (count !== undefined) count.nodes += nodes;
      else {
        const text = filter.summarise(failure, example, run);
        const reason = { ...failure, lasting, text, nodes, of };
        byDetail?.set(failure.detail ?? '', reason);
      }
    });
  return [...counts.values()]
    .flat()
    .flatMap((byDetail) => [...byDetail.values()])
    .sort(compareCounts);
}

/** Calls `visit` for each failure of a candidate, in the order of the filters. */
function visitFailures(
  candidate: FilterCandidate,
  run: FilterRun,
  visit: (filter: Filter, failure: Failure) => void,
): void {
  for (const filter of FILTERS) {
    const first = filter.check(candidate, run);
    if (first === undefined) continue;
    // Only a failed filter is asked for all its failures.
    if (filter.listAll === undefined) visit(filter, first);
    else for (const failure of filter.listAll(candidate, run)) visit(filter, failure);
  }
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
