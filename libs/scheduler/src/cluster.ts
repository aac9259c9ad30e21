import type { NodeId, ReplicaId } from '@cloudless/base';
import { createNodeRun, dependsOnNodesAlone, groupAlikeNodes } from './placement/alike-nodes.js';
import type { Candidate } from './placement/candidate.js';
import { explainNodes, type NodeExplanation } from './placement/explain.js';
import { suggestChange, type Suggestion } from './placement/suggest-change.js';
import {
  canStay,
  countReasons,
  countReasonsOfGroups,
  findNodeFailure,
  listReasons,
} from './filters/pipeline.js';
import { Ledger } from './reservations/ledger.js';
import { hashReplicaId } from './reservations/replica-index.js';
import { indexNode, parseHostPath, type IndexedNode, type SchedulerNode } from './input/node.js';
import { compareText } from './order.js';
import { PlacementEngine } from './placement/placement-engine.js';
import { PlacementRun } from './placement/placement-run.js';
import { ClusterPreemptionSource } from './preemption/cluster-preemption-source.js';
import { PreemptionSearch } from './preemption/preemption-search.js';
import type { PreemptionDecision, PreemptOptions } from './preemption/preemption.js';
import { NodeTable } from './columns/node-table.js';
import type { Slot } from './columns/value-column.js';
import { Problems } from './input/problems.js';
import type { Placement } from './placement/placement.js';
import { toFullRequest, type FullRequest, type PlacementRequest } from './input/request.js';
import {
  checkReservations,
  type HeldReservation,
  type ReplicaOnNode,
  type Reservation,
  type ReservationTemplate,
} from './input/reservation.js';
import { clampToZero, subtractResources, type Resources } from './input/resources.js';
import { RequestTerms } from './signatures/request-terms.js';
import { DEFAULT_WEIGHTS, normaliseWeights, type ScoreWeights } from './scoring/score.js';

/**
 * A node on which replicas of a request may run as far as only the node and the request decide.
 * Reservations are not considered.
 */
export interface EligibleNode {
  readonly nodeId: NodeId;
  /**
   * False while the node is lost, unreachable, draining, cordoned or quarantined, has an untolerated
   * NoSchedule taint, has suspended a capability that the request needs, or does not name a directory
   * of its host paths. Replicas that already run there stay, but no new replica is placed.
   */
  readonly schedulable: boolean;
}

/** Reserved and free resources of one node. */
export interface NodeUsage {
  /** Capacity minus the system reservation. */
  readonly allocatable: Resources;
  /** Sum over all reservations, including those of leaving replicas. */
  readonly allocated: Resources;
  /** Allocatable minus allocated, at least 0 (a node may shrink below its reservations). */
  readonly free: Resources;
  /** Number of reservations, including those of leaving replicas. */
  readonly replicas: number;
  /** Most replicas of the node. */
  readonly maxReplicas: number;
}

/**
 * Nodes and reservations that the caller keeps up to date, and placement decisions over them.
 * Decisions do not change the cluster: the caller commits a decision and then calls `reserve`. The
 * order in which nodes and reservations were added does not influence a decision.
 */
export interface Cluster {
  /**
   * Adds a node or replaces the node with the same id.
   * @throws InvalidInputError
   */
  upsertNode(node: SchedulerNode): void;
  /**
   * Removes a node. Reservations on the node stay until they are released, and count again if the
   * node is added again.
   */
  removeNode(nodeId: NodeId): void;
  /**
   * Adds the reservation of a replica, or replaces the replica's older reservation. A reservation
   * is accepted even if its node is unknown or too small; no further replica is placed on such a
   * node until enough resources are free.
   * @throws InvalidInputError
   */
  reserve(reservation: Reservation): void;
  /**
   * Adds the reservations of several equal replicas, as {@link reserve} does for each of them, in
   * less time.
   * @param template - What all of them have in common.
   * @throws InvalidInputError before anything is added.
   */
  reserveAll(template: ReservationTemplate, replicas: readonly ReplicaOnNode[]): void;
  /** Removes the reservation of a replica. Does nothing when there is none. */
  release(replicaId: ReplicaId): void;
  /** Returns the node of a replica's reservation; undefined without a reservation. */
  reservedOn(replicaId: ReplicaId): NodeId | undefined;
  /** Returns the node as it was passed to `upsertNode`, or undefined for an unknown node. */
  node(nodeId: NodeId): SchedulerNode | undefined;
  /** Returns the reserved and free resources of a node; undefined for an unknown node. */
  usage(nodeId: NodeId): NodeUsage | undefined;
  /** Lists the reservations of a node, known or not, in no particular order. */
  reservationsOn(nodeId: NodeId): HeldReservation[];
  /**
   * Chooses nodes for `count` replicas. Each decision considers the placements before as if they
   * had been reserved.
   * @returns One placement per replica. After the first refusal all further replicas are refused
   *   for the same reasons.
   * @throws InvalidInputError when the request is invalid or `count` is not a whole number of at
   *   least 0.
   */
  place(request: PlacementRequest, count: number): Placement[];
  /**
   * Decides for each of `nodeIds`, in this order, whether one replica fits on that node. Each
   * decision considers the placements before it.
   * @returns One placement per node. The reasons of a refusal describe this one node; they are
   *   empty when the node is unknown.
   * @throws InvalidInputError when the request is invalid.
   */
  placeOn(request: PlacementRequest, nodeIds: readonly NodeId[]): Placement[];
  /**
   * Decides which reservations of lower priority, on which one node, have to leave so that one
   * replica of the request fits there. Of all sufficient sets that the options allow, the
   * priorities of the victims, compared from the highest to the lowest, are as low as possible; no
   * victim can be spared. Resources, host ports and the number of replicas are considered; nothing
   * is evicted on a node that fails any other filter. Leaving replicas count as gone, and
   * reservations of the request's own workload are never evicted.
   * @throws InvalidInputError when the request is invalid.
   */
  preempt(request: PlacementRequest, options?: PreemptOptions): PreemptionDecision;
  /**
   * Returns the nodes that match the regions, zones, capabilities and labels of the request and
   * have no untolerated NoExecute taint, ordered by id. Capacity and other replicas are not
   * considered.
   * @throws InvalidInputError
   */
  eligibleNodes(request: PlacementRequest): EligibleNode[];
  /**
   * Finds the smallest change of the request or of one node after which one replica fits.
   * @returns undefined when a replica fits, when the cluster has no nodes, or when no change of one
   *   node and the request suffices, for example because all nodes are lost.
   * @throws InvalidInputError
   */
  suggest(request: PlacementRequest): Suggestion | undefined;
  /**
   * Describes for each node whether the next replica fits there. The first node that fits is the
   * one that `place` would choose.
   * @throws InvalidInputError
   */
  explain(request: PlacementRequest): NodeExplanation[];
  /** Returns an independent copy, for planning without side effects. */
  clone(): Cluster;
  /** Returns a cluster with the same weights, without nodes and reservations. */
  createEmpty(): Cluster;
  /** Returns what the cluster holds, what deciding has cost, and the memory in use. */
  figures(): SchedulerFigures;
}

/** Size, work and memory of a cluster. The work counts from the creation of the cluster. */
export interface SchedulerFigures {
  readonly nodes: number;
  /** Kinds of nodes that differ in what filters and scores read besides labels and free amounts. */
  readonly nodeClasses: number;
  readonly reservations: number;
  /** Nodes whose score was computed for a request that came once. */
  readonly nodesExamined: number;
  /** Scores computed in winner trees, when trees were built and when nodes changed. */
  readonly leavesUpdated: number;
  readonly treesBuilt: number;
  /** Winner trees copied from the tree of a request with equal scores. */
  readonly treesCopied: number;
  /** Winner trees kept at the moment. */
  readonly treesKept: number;
  /** Decisions about requests that came once. */
  readonly scans: number;
  /** Bytes of the arrays, roughly; without the objects that the caller passed. */
  readonly memoryBytes: number;
}

export interface ClusterOptions {
  /** Default: {@link DEFAULT_WEIGHTS}. */
  readonly weights?: ScoreWeights;
}

/**
 * Creates an empty cluster.
 * @throws InvalidInputError naming each weight that is negative or not finite, or `weights` when
 *   all are 0.
 */
export function createCluster(options: ClusterOptions = {}): Cluster {
  return new IncrementalCluster(
    normaliseWeights(options.weights ?? DEFAULT_WEIGHTS),
    new NodeTable(),
    new Map(),
  );
}

class IncrementalCluster implements Cluster {
  /** Created by the first call to `preempt`: clusters without preemption do not pay for it. */
  private preemption: PreemptionSearch | undefined;

  private readonly ledger: Ledger;
  private readonly engine: PlacementEngine;

  constructor(
    private readonly weights: ScoreWeights,
    private readonly table: NodeTable,
    private readonly nodes: Map<NodeId, IndexedNode>,
    toLedger: (table: NodeTable) => Ledger = (empty) => new Ledger(empty),
  ) {
    this.ledger = toLedger(table);
    this.engine = new PlacementEngine(table, this.ledger, weights);
  }

  upsertNode(node: SchedulerNode): void {
    const indexed = indexNode(node);
    this.nodes.set(node.id, indexed);
    const slot = this.table.slotFor(node.id);
    this.setNode(slot, indexed);
    this.preemption?.touch(slot);
  }

  removeNode(nodeId: NodeId): void {
    const slot = this.table.find(nodeId);
    if (slot === undefined || !this.nodes.delete(nodeId)) return;
    this.setNode(slot, undefined);
    this.table.forget(slot);
    this.preemption?.touch(slot);
  }

  reserve(reservation: Reservation): void {
    this.reserveAll(reservation, [reservation]);
  }

  reserveAll(template: ReservationTemplate, replicas: readonly ReplicaOnNode[]): void {
    checkReservations(template, replicas);
    if (replicas.length === 0) return;
    const batch = this.ledger.startBatch(template);
    for (const { replicaId, nodeId } of replicas) {
      const hash = hashReplicaId(replicaId);
      this.releaseOne(replicaId, hash);
      const slot = this.ledger.addToBatch(batch, replicaId, nodeId, hash);
      this.engine.noteChange(slot);
      this.preemption?.touch(slot);
    }
    this.ledger.dropGroup(batch.group);
  }

  reservedOn(replicaId: ReplicaId): NodeId | undefined {
    const slot = this.ledger.slotOf(replicaId);
    return slot === undefined ? undefined : this.idOf(slot);
  }

  release(replicaId: ReplicaId): void {
    this.releaseOne(replicaId, hashReplicaId(replicaId));
  }

  node(nodeId: NodeId): SchedulerNode | undefined {
    return this.nodes.get(nodeId)?.node;
  }

  usage(nodeId: NodeId): NodeUsage | undefined {
    const record = this.nodes.get(nodeId);
    if (record === undefined) return undefined;
    const { allocatable, maxReplicas } = record;
    const { allocated, replicas } = this.ledger.bookingsOn(nodeId);
    return {
      allocatable,
      allocated,
      free: clampToZero(subtractResources(allocatable, allocated)),
      replicas,
      maxReplicas,
    };
  }

  reservationsOn(nodeId: NodeId): HeldReservation[] {
    return this.ledger.reservationsOn(nodeId);
  }

  place(request: PlacementRequest, count: number): Placement[] {
    const problems = new Problems();
    problems.requireWholeNumber('count', count, 0);
    problems.throwIfAny();
    const full = toFullRequest(request);
    return this.engine.decide(full, count, () => this.refuse(full));
  }

  placeOn(request: PlacementRequest, nodeIds: readonly NodeId[]): Placement[] {
    const run = this.startRun(request);
    const candidates = new Map(run.candidates.map((candidate) => [candidate.node.id, candidate]));
    return nodeIds.map((nodeId): Placement => {
      const candidate = candidates.get(nodeId);
      if (candidate === undefined) return { placed: false, reasons: [] };
      const failure = run.failureOf(candidate);
      return failure === undefined
        ? assign(run, candidate)
        : {
            placed: false,
            reasons: listReasons(candidate, run).map((reason) => ({ ...reason, nodes: 1, of: 1 })),
          };
    });
  }

  preempt(request: PlacementRequest, options: PreemptOptions = {}): PreemptionDecision {
    this.preemption ??= new PreemptionSearch(
      new ClusterPreemptionSource({
        table: this.table,
        ledger: this.ledger,
        engine: this.engine,
      }),
    );
    return this.preemption.decide(toFullRequest(request), options);
  }

  eligibleNodes(request: PlacementRequest): EligibleNode[] {
    const run = { request: toFullRequest(request) };
    // A replica may have its host path through a link, which only its agent can follow.
    const capabilities = run.request.capabilities.filter(
      (capability) => parseHostPath(capability) === undefined,
    );
    const stay = { request: { ...run.request, capabilities } };
    return [...this.nodes.values()]
      .map((node) => ({ node }))
      .filter((candidate) => canStay(candidate, stay))
      .map((candidate) => ({
        nodeId: candidate.node.id,
        schedulable: findNodeFailure(candidate, run) === undefined,
      }))
      .sort((a, b) => compareText(a.nodeId, b.nodeId));
  }

  explain(request: PlacementRequest): NodeExplanation[] {
    return explainNodes(this.startRun(request));
  }

  suggest(request: PlacementRequest): Suggestion | undefined {
    const full = toFullRequest(request);
    return suggestChange(this.startRunWithoutScores(full), (node, changed) => {
      const nodes = new Map(this.nodes).set(node.id, indexNode(node));
      const run = this.startRunWithoutScores(toFullRequest(changed), nodes);
      const candidate = run.candidates.find((other) => other.node.id === node.id);
      return candidate !== undefined && run.failureOf(candidate) === undefined;
    });
  }

  clone(): Cluster {
    return new IncrementalCluster(this.weights, this.table.clone(), new Map(this.nodes), (table) =>
      this.ledger.clone(table),
    );
  }

  createEmpty(): Cluster {
    return new IncrementalCluster(this.weights, new NodeTable(), new Map());
  }

  figures(): SchedulerFigures {
    const { cacheBytes, ...work } = this.engine.figures;
    return {
      ...work,
      nodes: this.nodes.size,
      nodeClasses: this.table.classes.examples.length - 1,
      reservations: this.ledger.count,
      memoryBytes: cacheBytes + this.table.bytes + this.ledger.bytes,
    };
  }

  /** @param hash - Hash of the replica id. */
  private releaseOne(replicaId: ReplicaId, hash: number): void {
    const slot = this.ledger.remove(replicaId, hash);
    if (slot === undefined) return;
    this.engine.noteChange(slot);
    this.preemption?.touch(slot);
  }

  private setNode(slot: Slot, node: IndexedNode | undefined): void {
    const change = this.table.set(slot, node);
    if (change === 'domains') this.engine.noteDomainChange();
    if (change === 'node') this.engine.noteChange(slot);
  }

  private idOf(slot: Slot): NodeId {
    const id = this.table.ids[slot];
    if (id === undefined) throw new Error('a slot of a decision has a node');
    return id;
  }

  private refuse(request: FullRequest): Placement {
    const isAlone = dependsOnNodesAlone(request);
    if (isAlone && new RequestTerms(request, this.ledger.terms).isEmpty) {
      const groups = groupAlikeNodes(request, this.table);
      return { placed: false, reasons: countReasonsOfGroups(groups, createNodeRun(request)) };
    }
    const run = this.startRunWithoutScores(request);
    return { placed: false, reasons: countReasons(run.candidates, run) };
  }

  private startRunWithoutScores(
    request: FullRequest,
    nodes: ReadonlyMap<NodeId, IndexedNode> = this.nodes,
  ): PlacementRun {
    return new PlacementRun(request, undefined, nodes, this.ledger);
  }

  private startRun(request: PlacementRequest): PlacementRun {
    return new PlacementRun(toFullRequest(request), this.weights, this.nodes, this.ledger);
  }
}

/** Places one replica on a candidate for the rest of the run. */
function assign(run: PlacementRun, candidate: Candidate): Placement {
  // The score is read before the placement, which changes the score.
  const placement: Placement = {
    placed: true,
    nodeId: candidate.node.id,
    score: candidate.score,
    terms: candidate.terms,
  };
  run.addPlacement(candidate);
  return placement;
}
