import { compareNumbers, compareText } from '../order.js';
import type { ResourceField } from '../input/resources.js';

/**
 * The names of all filters, in the order in which they are checked. Filters that only the node and
 * the request decide come first, then capacity, then filters that depend on other replicas.
 */
export const PLACEMENT_FILTERS = [
  'lost',
  'unreachable',
  'draining',
  'cordoned',
  'quarantined',
  'region',
  'zone',
  'capability',
  'nodeSelector',
  'nodeAffinity',
  'nodeAntiAffinity',
  'suspendedCapability',
  'taint',
  'replicas',
  'cpu',
  'memory',
  'storage',
  'bandwidth',
  'gpu',
  'customResource',
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
   * The missing capability or custom resource, the unmet requirement, the taint, the port or the
   * topology. Absent for
   * filters that need no detail.
   */
  readonly detail?: string;
}

/** A failed filter in words. */
export interface NodeReason extends Failure {
  /**
   * True when only a change of the workload or of the cluster ends the failure; false when time may
   * end the failure, as for resources that other replicas hold, or a cordoned node.
   */
  readonly lasting: boolean;
  /** Short text, for example `no container runtime` or `needs 500m CPU, 200m free`. */
  readonly text: string;
}

/**
 * Number of nodes with the same failure. A node is counted under each of its failures, so that the
 * `nodes` of all reasons may sum to more than `of`.
 */
export interface PlacementReason extends NodeReason {
  readonly nodes: number;
  /** Number of nodes in the cluster. */
  readonly of: number;
}

/** Most reasons in one line. The reasons of the most nodes come first, others seldom help. */
const MAX_DESCRIBED = 6;

/**
 * Formats reasons as one line: `no container runtime: 3 of 3 nodes; not in zone b: 2 of 3 nodes`.
 * Without reasons: `no nodes in the cluster`.
 */
export function describeReasons(reasons: readonly PlacementReason[]): string {
  if (reasons.length === 0) return 'no nodes in the cluster';
  const shown = reasons
    .slice(0, MAX_DESCRIBED)
    .map(({ text, nodes, of }) => `${text}: ${nodes} of ${of} nodes`);
  const hidden = reasons.length - shown.length;
  return [...shown, ...(hidden > 0 ? [`${hidden} more reasons`] : [])].join('; ');
}

/** Orders counted reasons: by most nodes, then as {@link compareReasons} orders. */
export function compareCounts(a: PlacementReason, b: PlacementReason): number {
  return compareNumbers(b.nodes, a.nodes) || compareReasons(a, b);
}

/**
 * Orders reasons, the most telling first: lasting ones before temporary ones; among these a missing
 * runtime before everything that follows from it, then the order of the filters, then the detail.
 */
export function compareReasons(a: NodeReason, b: NodeReason): number {
  return (
    compareNumbers(Number(b.lasting), Number(a.lasting)) ||
    compareNumbers(rankOf(a), rankOf(b)) ||
    compareText(a.detail ?? '', b.detail ?? '')
  );
}

function rankOf({ filter, detail = '' }: Failure): number {
  return filter === 'capability' && detail.startsWith('runtime.')
    ? -1
    : PLACEMENT_FILTERS.indexOf(filter);
}

/** The filter that reports a shortage of each resource. */
export const FILTER_OF_RESOURCE: Readonly<Record<ResourceField, PlacementFilter>> = {
  cpuMillis: 'cpu',
  memoryBytes: 'memory',
  storageBytes: 'storage',
  bandwidthBps: 'bandwidth',
  gpus: 'gpu',
};
