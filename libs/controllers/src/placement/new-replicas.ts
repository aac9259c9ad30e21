import { ReplicaStatus_Phase as Phase, Rollout_Strategy as Strategy } from '@cloudless/api';
import type { ControlRecord, ReplicaRecord, WorkloadRecord } from '@cloudless/api/store';
import {
  noMeter,
  toNodeId,
  toReplicaId,
  type Clock,
  type Counter,
  type Meter,
} from '@cloudless/base';
import type {
  ClusterState,
  ClusterView,
  EventInit,
  Stored,
  Transaction,
} from '@cloudless/cluster-state';
import type { Cluster, Placement } from '@cloudless/scheduler';
import { refreshReservation } from './cluster-model.js';
import type { PendingBatches } from './pending-batches.js';
import { findLeftNodes } from './place-away.js';
import { createPlacementCounter } from './placement-counter.js';
import { createPlacedEvent } from './placement-events.js';
import { toPlacementRequest, toReservation } from './scheduler-input.js';

/**
 * Most replicas that one transaction creates with their nodes. Each adds up to two conditions, for
 * the replica and for its node; a transaction allows 100.
 */
export const MAX_CREATED_WITH_NODES = 45;

export interface NewReplicaPlacerDeps {
  readonly state: Pick<ClusterState, 'view'>;
  readonly cluster: Pick<Cluster, 'place' | 'reserveAll' | 'reserve' | 'release'>;
  readonly clock: Pick<Clock, 'wallTime'>;
  readonly pending: Pick<PendingBatches, 'hasAsUrgent'>;
  readonly meter?: Meter;
  /** Shared with the model of the scheduler, see `ClusterModelDeps`. Default: not shared. */
  readonly recordsBeingPlaced?: Set<ReplicaRecord>;
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
  private readonly inProgress = new Set<NewPlacement>();

  private readonly placements: Counter;

  constructor(private readonly deps: NewReplicaPlacerDeps) {
    this.placements = createPlacementCounter(deps.meter ?? noMeter);
  }

  /** True while the model holds reservations of replicas that are not committed yet. */
  get isPlacing(): boolean {
    return this.inProgress.size > 0;
  }

  /**
   * Begins the placement of new replicas of one version.
   * @returns Undefined when the placer has to decide about these replicas after their creation: when
   *   replicas of this or a more urgent batch wait already; for a blue/green rollout, which places a
   *   set as a whole; and while replicas leave nodes on request.
   */
  begin({ workload, nextControl }: CreatingPass, version: number): NewPlacement | undefined {
    const { state, clock, pending } = this.deps;
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
    return new NewPlacement(
      { ...this.deps, placements: this.placements, inProgress: this.inProgress },
      view,
      workload.value,
      version,
    );
  }
}

interface NewPlacementDeps extends NewReplicaPlacerDeps {
  readonly placements: Counter;
  readonly inProgress: Set<NewPlacement>;
}

/** The nodes of the replicas that one transaction creates. */
export class NewPlacement {
  private chosen: readonly Extract<Placement, { readonly placed: true }>[] = [];
  private placed: readonly ReplicaRecord[] = [];

  constructor(
    private readonly deps: NewPlacementDeps,
    private readonly view: ClusterView,
    private readonly workload: WorkloadRecord,
    private readonly version: number,
  ) {}

  /** Number of replicas with a node. */
  get size(): number {
    return this.chosen.length;
  }

  /** Chooses nodes for `count` replicas, or for the first of them when others fit no node. */
  choose(count: number): void {
    const { uid } = this.workload;
    const template = this.view.version(uid, this.version)?.template;
    if (template === undefined) return;
    let placements: readonly Placement[];
    try {
      placements = this.deps.cluster.place(toPlacementRequest(this.workload, template), count);
    } catch {
      // The placer meets the same failure, and records the failure as the reason of the replicas.
      return;
    }
    this.chosen = placements.filter(
      (placement) => placement.placed && this.view.node(placement.nodeId) !== undefined,
    ) as typeof this.chosen;
  }

  /** Returns the fields for the record of the replica with this index; none when no node fits. */
  getFields(index: number): Partial<ReplicaRecord> {
    const nodeId = this.chosen[index]?.nodeId;
    if (nodeId === undefined) return {};
    // A store without the creation is recognised by an order that is newer than the store. So the
    // order has the earliest revision that the commit can get, and not that of the decision.
    const orderRevision = this.view.revision + 1n;
    return { nodeId, phase: Phase.ASSIGNED, reason: '', orderRevision };
  }

  /**
   * Adds the conditions and the event of the placement to the transaction that creates the replicas.
   * @param created - The new replicas, with the fields of {@link getFields}.
   * @param causedBy - The event about the creation.
   */
  addTo(
    transaction: Transaction,
    created: readonly ReplicaRecord[],
    causedBy: EventInit | undefined,
  ): void {
    this.placed = created.slice(0, this.chosen.length);
    if (this.placed.length === 0) return;
    for (const nodeId of new Set(this.placed.map((replica) => replica.nodeId))) {
      // A node that was cordoned, changed or removed since the decision may no longer fit.
      const node = this.view.node(nodeId);
      if (node !== undefined) transaction.require('node', nodeId, node);
    }
    const placed = this.chosen.map(({ nodeId, score }, index) => ({
      replica: created[index] as ReplicaRecord,
      nodeId,
      score,
    }));
    const decisionId = `schedule/${this.workload.uid}@${this.view.revision}`;
    const facts = { view: this.view, workload: this.workload, decisionId, causedBy };
    transaction.event(createPlacedEvent(facts, placed));
  }

  /** Reserves the nodes, before the commit of the transaction. */
  reserve(): void {
    const [first] = this.placed;
    const template = this.view.version(this.workload.uid, this.version)?.template;
    if (first === undefined || template === undefined) return;
    this.deps.inProgress.add(this);
    this.deps.cluster.reserveAll(
      toReservation(this.workload, first, template),
      this.placed.map(({ id, nodeId }) => ({
        replicaId: toReplicaId(id),
        nodeId: toNodeId(nodeId),
      })),
    );
    for (const replica of this.placed) this.deps.recordsBeingPlaced?.add(replica);
  }

  /** Gives the reservations back unless the transaction was committed. */
  end(isCommitted: boolean): void {
    const { state, cluster, placements, recordsBeingPlaced, inProgress } = this.deps;
    inProgress.delete(this);
    for (const replica of this.placed) recordsBeingPlaced?.delete(replica);
    if (isCommitted) placements.add(this.placed.length, { result: 'placed' });
    else for (const { id } of this.placed) refreshReservation(cluster, state.view(), id);
  }
}
