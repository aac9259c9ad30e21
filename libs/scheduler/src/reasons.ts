import { compareNumbers, compareText } from './order.js';
import type { ResourceField } from './resources.js';

/**
 * Why a node cannot take a replica, in the order in which the filters are asked. A node is counted
 * under the first that fails: what no other replica can change comes first, then room, then what
 * depends on where other replicas are.
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

/** A filter that failed, and on what. */
export interface Failure {
  readonly filter: PlacementFilter;
  /**
   * The missing capability, the unmet requirement, the taint, the port, the topology; absent where
   * the filter says it all.
   */
  readonly detail?: string;
}

/**
 * How many nodes failed first on the same thing. The `nodes` of all reasons of one refusal sum to
 * `of`.
 */
export interface PlacementReason extends Failure {
  readonly nodes: number;
  /** All nodes of the cluster. */
  readonly of: number;
}

/**
 * Reasons as one line: `cpu: 2 of 3 nodes, zone: 1 of 3 nodes`.
 * No reasons means that there was no node to fail: `no nodes in the cluster`.
 */
export function describeReasons(reasons: readonly PlacementReason[]): string {
  if (reasons.length === 0) return 'no nodes in the cluster';
  return reasons
    .map((reason) => `${describeFailure(reason)}: ${reason.nodes} of ${reason.of} nodes`)
    .join(', ');
}

/**
 * The failed filter for people: `node selector disk=ssd`, `capability runtime.cri`, `cpu`, `host
 * port 8080 is taken`.
 */
export function describeFailure({ filter, detail }: Failure): string {
  if (filter === 'hostPort') return `host port ${detail ?? ''} is taken`;
  const words = WORDS[filter] ?? filter;
  return detail === undefined ? words : `${words} ${detail}`;
}

/** Filters that are more than one word; the others are called what they are. */
const WORDS: Partial<Record<PlacementFilter, string>> = {
  nodeSelector: 'node selector',
  nodeAffinity: 'node affinity',
  nodeAntiAffinity: 'node anti-affinity',
  workloadAffinity: 'workload affinity',
  workloadAntiAffinity: 'workload anti-affinity',
};

/** Counts failures, most nodes first, then in the order of the filters, then by detail. */
export function tally(failures: readonly Failure[]): PlacementReason[] {
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

/** The filter that a shortage of each resource falls under. */
export const FILTER_OF_RESOURCE: Readonly<Record<ResourceField, PlacementFilter>> = {
  cpuMillis: 'cpu',
  memoryBytes: 'memory',
  storageBytes: 'storage',
  bandwidthBps: 'bandwidth',
  gpus: 'gpu',
};
