import type { NodeId, ReplicaId } from '@cloudless/base';
import type { Candidate } from './candidate.js';
import { explainNodes, type NodeExplanation } from './explain.js';
import { mayStay, nodeFailure } from './filters.js';
import { Ledger } from './ledger.js';
import { toNodeRecord, type NodeRecord, type SchedulerNode } from './node.js';
import { compareText } from './order.js';
import { PlacementRun } from './placement-run.js';
import { Problems } from './problems.js';
import { tally, type PlacementReason } from './reasons.js';
import { toFullRequest, type PlacementRequest } from './request.js';
import { checkReservation, type Reservation } from './reservation.js';
import { atLeastNothing, minus, type Resources } from './resources.js';
import { DEFAULT_WEIGHTS, normaliseWeights, type ScoreTerms, type ScoreWeights } from './score.js';

/** The decision for one replica: a node, or why there is none. */
export type Placement =
  | {
      readonly placed: true;
      readonly nodeId: NodeId;
      readonly score: number;
      readonly terms: ScoreTerms;
    }
  | { readonly placed: false; readonly reasons: readonly PlacementReason[] };

/** A node that a request fits by all that no replica changes, whatever is booked there. */
export interface EligibleNode {
  readonly nodeId: NodeId;
  /**
   * False while the node is lost, draining, cordoned or quarantined, or has a NoSchedule taint that
   * the request does not tolerate: a replica that is there may stay, as far as the node's kind
   * goes, and none is added.
   */
  readonly takesNew: boolean;
}

/** What is booked on a node and what is left. */
export interface NodeUsage {
  /** Capacity without what is kept for the system. */
  readonly allocatable: Resources;
  /** The sum over all reservations, leaving ones included. */
  readonly allocated: Resources;
  /** What is left; 0 where a node has shrunk below what is booked on it. */
  readonly free: Resources;
  readonly replicas: number;
  readonly maxReplicas: number;
}

/**
 * Nodes and reservations, kept up to date by the caller, and the decisions over them. Decisions
 * change nothing: the caller commits one and then enters it with `reserve`. They depend on what is
 * in the cluster, never on the order it came in.
 */
export interface Cluster {
  /** Adds a node or replaces what was known of it. @throws InvalidInputError */
  upsertNode(node: SchedulerNode): void;
  /**
   * Forgets a node. Reservations on it stay until they are released and count again if it comes
   * back.
   */
  removeNode(nodeId: NodeId): void;
  /**
   * Enters what a replica holds, in place of an older entry of the same replica. Reservations are
   * facts: one is entered even if its node is not known yet or has shrunk too far; nothing more is
   * placed there until there is room.
   * @throws InvalidInputError
   */
  reserve(reservation: Reservation): void;
  /** Frees what a replica holds; no entry is fine. */
  release(replicaId: ReplicaId): void;
  /** The node as it was given, undefined when not known. */
  node(nodeId: NodeId): SchedulerNode | undefined;
  /** Undefined when the node is not known. */
  usage(nodeId: NodeId): NodeUsage | undefined;
  /**
   * Decides where `count` replicas go, each with regard to those before it, as if each had been
   * reserved at once.
   * @returns One placement per replica; after the first that is refused all are, for the same
   *   reasons.
   * @throws InvalidInputError when the request makes no sense or `count` is not a whole number of 0
   *   or more.
   */
  place(request: PlacementRequest, count: number): Placement[];
  /**
   * Decides for one replica on each of `nodeIds`, in that order and each with regard to those
   * before it: this node or none.
   * @returns One placement per node; the reasons of a refusal speak of this one node, and are none
   *   when it is not known.
   * @throws InvalidInputError when the request makes no sense.
   */
  placeOn(request: PlacementRequest, nodeIds: readonly NodeId[]): Placement[];
  /**
   * The nodes on which replicas of a request may be, by id: of the region, zone, capabilities and
   * labels that are asked for, and without a NoExecute taint that is not tolerated. Neither room
   * nor other replicas matter. @throws InvalidInputError
   */
  eligible(request: PlacementRequest): EligibleNode[];
  /**
   * What each node is to the next replica; the first that fits is the one `place` takes. @throws
   * InvalidInputError
   */
  explain(request: PlacementRequest): NodeExplanation[];
  /** An equal cluster that goes its own way: to plan on without doing. */
  clone(): Cluster;
}

/** Settings of {@link createCluster}. */
export interface ClusterOptions {
  /** Default {@link DEFAULT_WEIGHTS}. */
  readonly weights?: ScoreWeights;
}

/**
 * An empty cluster. @throws InvalidInputError naming a weight that is negative or not finite, or
 * all of them when all are 0.
 */
export function createCluster(options: ClusterOptions = {}): Cluster {
  return new IncrementalCluster(
    normaliseWeights(options.weights ?? DEFAULT_WEIGHTS),
    new Map(),
    new Ledger(),
  );
}

class IncrementalCluster implements Cluster {
  constructor(
    private readonly weights: ScoreWeights,
    private readonly nodes: Map<NodeId, NodeRecord>,
    private readonly ledger: Ledger,
  ) {}

  upsertNode(node: SchedulerNode): void {
    this.nodes.set(node.id, toNodeRecord(node));
  }

  removeNode(nodeId: NodeId): void {
    this.nodes.delete(nodeId);
  }

  reserve(reservation: Reservation): void {
    checkReservation(reservation);
    this.ledger.enter(reservation);
  }

  release(replicaId: ReplicaId): void {
    this.ledger.remove(replicaId);
  }

  node(nodeId: NodeId): SchedulerNode | undefined {
    return this.nodes.get(nodeId)?.node;
  }

  usage(nodeId: NodeId): NodeUsage | undefined {
    const record = this.nodes.get(nodeId);
    if (record === undefined) return undefined;
    const { allocatable, maxReplicas } = record;
    const { allocated, replicas } = this.ledger.bookedOn(nodeId);
    return {
      allocatable,
      allocated,
      free: atLeastNothing(minus(allocatable, allocated)),
      replicas,
      maxReplicas,
    };
  }

  place(request: PlacementRequest, count: number): Placement[] {
    const problems = new Problems();
    problems.wholeNumber('count', count, 0);
    problems.throwIfAny();
    const run = this.look(request);
    const placements: Placement[] = [];
    while (placements.length < count) {
      const best = run.best();
      if (best === undefined) {
        // Nothing has changed for the next one either.
        const refusal: Placement = {
          placed: false,
          reasons: tally(run.failures().filter((failure) => failure !== undefined)),
        };
        return [...placements, ...Array.from({ length: count - placements.length }, () => refusal)];
      }
      placements.push(take(run, best));
    }
    return placements;
  }

  placeOn(request: PlacementRequest, nodeIds: readonly NodeId[]): Placement[] {
    const run = this.look(request);
    const candidates = new Map(run.candidates.map((candidate) => [candidate.record.id, candidate]));
    return nodeIds.map((nodeId): Placement => {
      const candidate = candidates.get(nodeId);
      if (candidate === undefined) return { placed: false, reasons: [] };
      const failure = run.failureOf(candidate);
      return failure === undefined
        ? take(run, candidate)
        : { placed: false, reasons: tally([failure]) };
    });
  }

  eligible(request: PlacementRequest): EligibleNode[] {
    const full = toFullRequest(request);
    return [...this.nodes.values()]
      .filter((record) => mayStay(record, full))
      .map((record) => ({ nodeId: record.id, takesNew: nodeFailure(record, full) === undefined }))
      .sort((a, b) => compareText(a.nodeId, b.nodeId));
  }

  explain(request: PlacementRequest): NodeExplanation[] {
    return explainNodes(this.look(request));
  }

  clone(): Cluster {
    return new IncrementalCluster(this.weights, new Map(this.nodes), this.ledger.clone());
  }

  private look(request: PlacementRequest): PlacementRun {
    return new PlacementRun(toFullRequest(request), this.weights, this.nodes, this.ledger);
  }
}

/** Places one replica on a candidate, as far as the run is concerned. */
function take(run: PlacementRun, candidate: Candidate): Placement {
  // Read first: booking makes the node fuller.
  const placement: Placement = {
    placed: true,
    nodeId: candidate.record.id,
    score: candidate.score,
    terms: candidate.terms,
  };
  run.book(candidate);
  return placement;
}
