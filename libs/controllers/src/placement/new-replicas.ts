import { ReplicaStatus_Phase as Phase, Rollout_Strategy as Strategy } from '@cloudless/api';
import type {
  ControlRecord,
  NodeRecord,
  ReplicaRecord,
  WorkloadRecord,
} from '@cloudless/api/store';
import {
  noMeter,
  replicaIdOf,
  toWorkloadId,
  type Clock,
  type Counter,
  type Meter,
  TransientSet,
} from '@cloudless/base';
import type {
  ClusterState,
  ClusterView,
  EventInit,
  Stored,
  Transaction,
} from '@cloudless/cluster-state';
import type { Cluster, Placement, ReplicaOnNode } from '@cloudless/scheduler';
import { refreshReservation, reservePlacements } from './cluster-model.js';
import type { PendingBatches } from './pending-batches.js';
import { findLeftNodes } from './place-away.js';
import { createPlacementCounter } from './placement-counter.js';
import { createPlacedEvent, toDecisionId, type PlacedReplica } from './placement-events.js';
import { MAX_PLACED_PER_DECISION } from './placement-writer.js';
import { toPlacementRequest } from './scheduler-input.js';

export interface NewReplicaPlacerDeps {
  readonly state: Pick<ClusterState, 'view'>;
  readonly cluster: Pick<Cluster, 'place' | 'reserveAll' | 'reserve' | 'release'>;
  readonly clock: Pick<Clock, 'wallTime'>;
  readonly pending: Pick<PendingBatches, 'hasAsUrgent'>;
  readonly meter?: Meter;
  /** Shared with the model of the scheduler, see `ClusterModelDeps`. Default: not shared. */
  readonly recordsBeingPlaced?: TransientSet<ReplicaRecord>;
}

/** The workload whose replicas are created, as the pass that creates them sees the workload. */
export interface CreatingPass {
  readonly workload: Stored<WorkloadRecord>;
  readonly nextControl: ControlRecord;
}

/**
 * Chooses nodes for replicas in the transaction that creates them. A replica then needs one write
 * instead of two until its node has the order. Replicas that get no node here wait, and the placer
 * decides about them.
 */
export class NewReplicaPlacer {
  /** The placements that are being committed. */
  private readonly inProgress = new TransientSet<NewPlacement>();

  private readonly placements: Counter;

  constructor(private readonly deps: NewReplicaPlacerDeps) {
    this.placements = createPlacementCounter(deps.meter ?? noMeter);
  }

  /** True while the model holds reservations of replicas that are not committed yet. */
  get isPlacing(): boolean {
    return this.inProgress.size > 0;
  }

  /**
   * Chooses and reserves nodes for new replicas of one version: for up to `count`, and for the first
   * of them when others fit no node. The caller has to close the result.
   * @returns Undefined when the placer has to decide about these replicas after their creation: when
   *   no node fits; when replicas of this or a more urgent batch wait already; for a blue/green
   *   rollout, which places a set as a whole; and while replicas leave nodes on request.
   */
  choose(
    { workload, nextControl }: CreatingPass,
    version: number,
    count: number,
  ): NewPlacement | undefined {
    const { state, clock, cluster, pending } = this.deps;
    const { uid, spec, createdAt } = workload.value;
    const view = state.view();
    const template = view.version(uid, version)?.template;
    if (template === undefined) return undefined;
    const strategies = [spec?.rollout?.strategy, nextControl.rollout?.strategy];
    if (strategies.includes(Strategy.BLUE_GREEN)) return undefined;
    if (findLeftNodes(view, nextControl, version, clock.wallTime()).length > 0) return undefined;
    const { priority = 0 } = template;
    const isNext = !pending.hasAsUrgent({ priority, createdAt: Number(createdAt?.seconds ?? 0n) });
    if (!isNext) return undefined;
    let placements: readonly Placement[];
    try {
      const request = toPlacementRequest(workload.value, template);
      placements = cluster.place(request, Math.min(count, MAX_PLACED_PER_DECISION));
    } catch {
      // The placer meets the same failure, and records the failure as the reason of the replicas.
      return undefined;
    }
    // A decision numbers its replicas one after the other.
    const firstSequence = Number(nextControl.nextSequence);
    const chosen: ChosenNode[] = [];
    for (const placement of placements) {
      const node = placement.placed ? view.node(placement.nodeId) : undefined;
      if (!placement.placed || node === undefined) continue;
      const { nodeId, score } = placement;
      const replicaId = replicaIdOf(toWorkloadId(uid), firstSequence + chosen.length);
      chosen.push({ replicaId, nodeId, node, score });
    }
    if (chosen.length === 0) return undefined;
    reservePlacements(cluster, { workload: workload.value, template }, chosen);
    return new NewPlacement(
      {
        ...{ ...this.deps, placements: this.placements, inProgress: this.inProgress },
        ...{ view, workload: workload.value },
      },
      chosen,
    );
  }
}

interface NewPlacementDeps extends NewReplicaPlacerDeps {
  readonly placements: Counter;
  readonly inProgress: TransientSet<NewPlacement>;
  readonly view: ClusterView;
  readonly workload: WorkloadRecord;
}

/**
 * The nodes of the replicas that the transactions of one decision create, one after the other. The
 * nodes are reserved until {@link close}.
 */
export class NewPlacement {
  /** Number of chosen nodes that transactions have taken. */
  private taken = 0;
  /** Number of replicas that were committed with their nodes. */
  private committed = 0;

  constructor(
    private readonly deps: NewPlacementDeps,
    private readonly chosen: readonly ChosenNode[],
  ) {
    deps.inProgress.add(this);
  }

  /** True when transactions have taken all chosen nodes. */
  get isUsedUp(): boolean {
    return this.taken >= this.chosen.length;
  }

  /**
   * Starts with the replicas of the next transaction. Call this method when the transaction before
   * is committed.
   */
  startCreation(): PlacedCreation {
    return new PlacedCreation(this.deps, this);
  }

  /** Returns the node for the next replica; undefined when no node fits. */
  takeNextNode(): ChosenNode | undefined {
    const node = this.chosen[this.taken];
    if (node !== undefined) this.taken += 1;
    return node;
  }

  /** Keeps the reservations of the next `count` replicas, which were committed. */
  confirm(count: number): void {
    this.committed += count;
    if (this.committed === this.chosen.length) this.deps.inProgress.delete(this);
  }

  /** Gives back all reservations of replicas that were not committed. */
  close(): void {
    const { state, cluster, inProgress } = this.deps;
    for (const { replicaId } of this.chosen.slice(this.committed))
      refreshReservation(cluster, state.view(), replicaId);
    this.committed = this.chosen.length;
    inProgress.delete(this);
  }
}

/** A node for a new replica. */
export interface ChosenNode extends ReplicaOnNode {
  /** The node as of the decision. */
  readonly node: Stored<NodeRecord>;
  readonly score: number;
}

type PlacedCreationDeps = Pick<
  NewPlacementDeps,
  'placements' | 'recordsBeingPlaced' | 'view' | 'workload'
>;

/** A new replica, and its node as of the decision. */
interface PlacedOnNode extends PlacedReplica {
  readonly node: Stored<NodeRecord>;
}

/** The nodes of the replicas that one transaction creates. */
export class PlacedCreation {
  private readonly placed: PlacedOnNode[] = [];
  /**
   * The `orderRevision` of the new replicas: the earliest revision that the commit can get, and not
   * that of the decision. A store that has lost the creation is recognised by an order that is newer
   * than the store.
   */
  private readonly orderRevision: bigint;

  constructor(
    private readonly deps: PlacedCreationDeps,
    private readonly source: Pick<NewPlacement, 'takeNextNode' | 'confirm'>,
  ) {
    this.orderRevision = deps.view.revision + 1n;
  }

  /** Number of replicas with a node. */
  get size(): number {
    return this.placed.length;
  }

  /**
   * Returns the node for the next replica of the transaction; undefined when no node fits. Call
   * {@link assignNode} with the result.
   */
  takeNextNode(): ChosenNode | undefined {
    return this.source.takeNextNode();
  }

  /** Sets the node of a new replica that is in no transaction yet. */
  assignNode(replica: ReplicaRecord, { nodeId, node, score }: ChosenNode): void {
    replica.nodeId = nodeId;
    replica.phase = Phase.ASSIGNED;
    replica.reason = '';
    replica.orderRevision = this.orderRevision;
    this.placed.push({ replica, nodeId, node, score });
  }

  /**
   * Adds the conditions and the event of the placement to the transaction that creates the replicas
   * of {@link assignNode}.
   * @param causedBy - The event about the creation.
   */
  addTo(transaction: Transaction, causedBy: EventInit | undefined): void {
    const { placed } = this;
    const { view, workload } = this.deps;
    if (placed.length === 0) return;
    // A node that was cordoned, changed or removed since the decision may no longer fit.
    for (const { nodeId, node } of placed) transaction.require('node', nodeId, node);
    const decisionId = toDecisionId(view, workload);
    transaction.event(createPlacedEvent({ view, workload, decisionId, causedBy }, placed));
  }

  /** Call this method before the commit of the transaction. */
  begin(): void {
    for (const { replica } of this.placed) this.deps.recordsBeingPlaced?.add(replica);
  }

  /** Call this method at the end of the commit. */
  end(isCommitted: boolean): void {
    for (const { replica } of this.placed) this.deps.recordsBeingPlaced?.delete(replica);
    if (!isCommitted) return;
    this.deps.placements.add(this.placed.length, { result: 'placed' });
    this.source.confirm(this.placed.length);
  }
}
