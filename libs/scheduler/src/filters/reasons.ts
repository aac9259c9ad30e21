import { compareNumbers, compareText } from '../order.js';
import type { ResourceField } from '../input/resources.js';

/**
 * The names of all filters, in the order in which they are checked. A node is counted under its
 * first failing filter. Filters that only the node and the request decide come first, then
 * capacity, then filters that depend on other replicas.
 */
export const PLACEMENT_FILTERS = [
  'lost',
  'draining',
  'cordoned',
  'quarantined',
  'region',
  'zone',
  'capability',
  'nodeSelector',
  'nodeAffinity',
  'nodeAntiAffinity',
  'taint',
  'replicas',
  'cpu',
  'memory',
  'storage',
  'bandwidth',
  'gpu',
  'hostPort',
  'workloadAffinity',
  'workloadAntiAffinity',
  'spread',
] as const;

export type PlacementFilter = (typeof PLACEMENT_FILTERS)[number];

/** A failed filter. */
export interface Failure {
  readonly filter: PlacementFilter;
  /**
   * The missing capability, the unmet requirement, the taint, the port or the topology. Absent for
   * filters that need no detail.
   */
  readonly detail?: string;
}

/**
 * Number of nodes with the same first failure. The `nodes` of all reasons of one refusal sum to
 * `of`.
 */
export interface PlacementReason extends Failure {
  readonly nodes: number;
  /** Number of nodes in the cluster. */
  readonly of: number;
}

/**
 * Formats reasons as one line: `cpu: 2 of 3 nodes, zone: 1 of 3 nodes`. Without reasons: `no nodes
 * in the cluster`.
 */
export function describeReasons(reasons: readonly PlacementReason[]): string {
  if (reasons.length === 0) return 'no nodes in the cluster';
  return reasons
    .map((reason) => `${describeFailure(reason)}: ${reason.nodes} of ${reason.of} nodes`)
    .join(', ');
}

/**
 * Formats a failed filter for people: `node selector disk=ssd`, `capability runtime.cri`, `cpu`,
 * `host port 8080 is taken`.
 */
export function describeFailure({ filter, detail }: Failure): string {
  if (filter === 'hostPort') return `host port ${detail ?? ''} is taken`;
  const words = FILTER_LABELS[filter] ?? filter;
  return detail === undefined ? words : `${words} ${detail}`;
}

/** Display names of filters that differ from their identifier. */
const FILTER_LABELS: Partial<Record<PlacementFilter, string>> = {
  nodeSelector: 'node selector',
  nodeAffinity: 'node affinity',
  nodeAntiAffinity: 'node anti-affinity',
  workloadAffinity: 'workload affinity',
  workloadAntiAffinity: 'workload anti-affinity',
};

/** Counts equal failures, ordered by most nodes, then by filter order, then by detail. */
export function countReasons(failures: readonly Failure[]): PlacementReason[] {
  const counts = new Map<string, { readonly failure: Failure; nodes: number }>();
  for (const failure of failures) {
    const key = `${failure.filter} ${failure.detail ?? ''}`;
    const count = counts.get(key);
    if (count === undefined) counts.set(key, { failure, nodes: 1 });
    else count.nodes += 1;
  }
  const rank = (reason: PlacementReason): number => PLACEMENT_FILTERS.indexOf(reason.filter);
  return Array.from(counts.values(), ({ failure, nodes }) => ({
    ...failure,
    nodes,
    of: failures.length,
  })).sort(
    (a, b) =>
      compareNumbers(b.nodes, a.nodes) ||
      compareNumbers(rank(a), rank(b)) ||
      compareText(a.detail ?? '', b.detail ?? ''),
  );
}

/** The filter that reports a shortage of each resource. */
export const FILTER_OF_RESOURCE: Readonly<Record<ResourceField, PlacementFilter>> = {
  cpuMillis: 'cpu',
  memoryBytes: 'memory',
  storageBytes: 'storage',
  bandwidthBps: 'bandwidth',
  gpus: 'gpu',
};
