import type { SchedulerHostPort } from '../input/host-ports.js';
import type { IndexedNode } from '../input/node.js';
import type { FullRequest } from '../input/request.js';
import type { Resources } from '../input/resources.js';
import type { Failure, PlacementFilter } from './reasons.js';
import type { DomainCount, TermMatches } from './workload-terms.js';

/**
 * One condition that a node must meet for a placement.
 *
 * The type parameters are the input of the filter: a `Filter<FilterNode, FilterRequest>` depends
 * only on the node and the request, so its result is the same during a whole call to `place`. A
 * plain `Filter` also reads reservations and other replicas.
 */
export interface Filter<
  Node extends FilterNode = FilterCandidate,
  Run extends FilterRequest = FilterRun,
> {
  /** The names under which the filter reports a failure, in the order of the reasons. */
  readonly names: readonly PlacementFilter[];
  /**
   * @returns The failure, or undefined when the node meets the condition. When several items fail,
   *   the alphabetically first is reported.
   */
  check(node: Node, run: Run): Failure | undefined;
  /**
   * Returns all failures on the node, for explanations. Empty exactly when `check` returns
   * undefined. Absent for filters that fail in one way only.
   */
  listAll?(node: Node, run: Run): readonly Failure[];
  /**
   * Describes a failure on this node in words, for example `needs 500m CPU, 200m free`.
   */
  explain(failure: Failure, node: Node, run: Run): string;
  /**
   * Describes a failure without the numbers and names of the node, so that equal failures of
   * several nodes have the same text: `needs 500m CPU, more than is free`.
   */
  summarise(failure: Failure, node: Node, run: Run): string;
  /**
   * Returns true when only a change of the workload or of the cluster ends the failure, and false
   * when time may end the failure.
   */
  isLasting(failure: Failure, node: Node, run: Run): boolean;
}

/** A filter that depends only on the node and the request. */
export type NodeFilter = Filter<FilterNode, FilterRequest>;

/** The part of a candidate that no placement changes. */
export interface FilterNode {
  readonly node: IndexedNode;
}

/** A node with its reservations and the replicas in its domains, during a call to `place`. */
export interface FilterCandidate extends FilterNode {
  /** Resources reserved on the node, including the placements of this call. */
  readonly allocated: Resources;
  /** Replicas on the node, including leaving replicas and the placements of this call. */
  readonly replicas: number;
  /**
   * A requested host port that a reservation or an earlier placement of this call holds on the
   * node; undefined when all requested ports are free.
   */
  readonly heldPort: SchedulerHostPort | undefined;
  /** Topology of a term of an existing replica that excludes this node; undefined without one. */
  readonly excludedBy: string | undefined;
  /**
   * Replica count of the node's domain for each workload affinity (or anti-affinity) term, in the
   * order of the request. Undefined for a node in no domain.
   */
  readonly affinityDomains: readonly (DomainCount | undefined)[];
  readonly antiAffinityDomains: readonly (DomainCount | undefined)[];
  /**
   * Replicas of the workload in the node's domain of the declared spread, without leaving replicas.
   * Without a declared spread, all nodes share one object with count 0.
   */
  readonly inSpread: DomainCount;
}

export interface FilterRequest {
  readonly request: FullRequest;
}

/** The request with its matches in the whole cluster, during a call to `place`. */
export interface FilterRun extends FilterRequest {
  readonly affinity: readonly TermMatches[];
  readonly antiAffinity: readonly TermMatches[];
  /**
   * Replica count at which a domain of a required spread is full; undefined without a required
   * spread.
   */
  readonly spreadCeiling: number | undefined;
}
