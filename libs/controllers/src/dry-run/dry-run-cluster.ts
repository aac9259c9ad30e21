import { clone, create } from '@bufbuild/protobuf';
import { ReplicaStatus_Phase as Phase } from '@cloudless/api';
import {
  ControlRecordSchema,
  ReplicaRecordSchema,
  type ControlRecord,
  type NodeRecord,
  type ReplicaRecord,
  type VersionRecord,
  type WorkloadRecord,
} from '@cloudless/api/store';
import { replicaIdOf, toNodeId, toReplicaId, toWorkloadId, type Clock } from '@cloudless/base';
import {
  copyReplica,
  holdsResources,
  isLive,
  type ClusterView,
  type NodeSubject,
  type Stored,
} from '@cloudless/cluster-state';
import type { Cluster, PlacementRequest, Preemption } from '@cloudless/scheduler';
import { findEviction } from '../drain/eviction.js';
import type { NodeDirectory } from '../node/node-directory.js';
import type { ReadinessTracker } from '../rollout/readiness-tracker.js';
import { toReservation, toSchedulerNode } from '../placement/scheduler-input.js';
import { createPreemptOptions } from '../preemption/preemption-plan.js';
import { ExpectedNodes } from './expected-nodes.js';
import type { PlacementBudget } from './placement-budget.js';

/** The part of the state that a dry run starts from. */
export type DryRunBase = Pick<
  ClusterView,
  'workload' | 'control' | 'version' | 'node' | 'nodes' | 'replicasOf' | 'replicasOn' | 'revision'
>;

export interface DryRunClusterDeps {
  readonly state: { view(): DryRunBase };
  readonly nodes: Pick<NodeDirectory, 'status' | 'isAlive'>;
  readonly readiness: Pick<ReadinessTracker, 'readyForMs'>;
  readonly cluster: Cluster;
  readonly clock: Pick<Clock, 'wallTime'>;
  /** True when `cluster` is a copy for this dry run already. Default: false. */
  readonly ownsModel?: boolean;
}

/**
 * The part of the cluster view that a dry run reads. A predicted record hides the record of the
 * state with the same key.
 */
export type DryRunView = Pick<ClusterView, 'workload' | 'control' | 'version' | 'node'>;

/**
 * A simulated cluster for one dry run: predicted records over the records of the state, and a copy
 * of the scheduler's model of the cluster. The state itself is never changed.
 */
export class DryRunCluster {
  readonly schedulerModel: Cluster;
  /** The nodes, of which those that a new leader expects count as connected. */
  readonly nodes: Pick<NodeDirectory, 'status' | 'isAlive'>;
  /** Returns the predicted record of a key, else the record of the state. */
  readonly view: DryRunView;
  private readonly base: DryRunBase;
  private readonly expected: ExpectedNodes;
  // Predicted records by id. A change makes at most one new version of a workload.
  private readonly workloads = new Map<string, WorkloadRecord>();
  private readonly controls = new Map<string, ControlRecord>();
  private readonly newVersions = new Map<string, VersionRecord>();
  private readonly nodeRecords = new Map<string, NodeRecord>();
  private readonly removedNodes = new Set<string>();
  /** All replicas of each workload with a predicted replica, by workload id. */
  private readonly replicas = new Map<string, readonly ReplicaRecord[]>();
  /** The sequence number of the next predicted replica, by workload id. */
  private readonly sequences = new Map<string, bigint>();
  private readonly createdReplicas = new Set<ReplicaRecord>();
  /** Ids of the replicas that are predicted to be ready for long enough to be available. */
  private readonly predictedReadyIds = new Set<string>();

  /** @param budget - Shared by all simulated clusters of one plan. */
  constructor(
    private readonly deps: DryRunClusterDeps,
    readonly budget: PlacementBudget,
  ) {
    this.base = deps.state.view();
    this.schedulerModel = deps.ownsModel === true ? deps.cluster : deps.cluster.clone();
    this.view = this.createOverlay();
    this.expected = new ExpectedNodes({ ...deps, view: this.base });
    this.expected.putInto(this.schedulerModel);
    this.nodes = this.expected;
  }

  /**
   * Readiness of existing and of predicted replicas. A replica that is predicted to be ready has
   * been ready for an infinite time, so that it counts as available.
   */
  readonly readiness: Pick<ReadinessTracker, 'readyForMs'> = {
    readyForMs: (replica) =>
      this.predictedReadyIds.has(replica.id)
        ? Number.POSITIVE_INFINITY
        : this.expected.readyForMs(replica),
  };

  /** Returns the wall-clock milliseconds of now. */
  wallTime(): number {
    return this.deps.clock.wallTime();
  }

  /**
   * Adds or replaces a workload.
   * @param workload - The record that the change would write.
   * @param version - The new version; undefined when the change makes none.
   */
  putWorkload(workload: WorkloadRecord, version: VersionRecord | undefined): void {
    this.workloads.set(workload.uid, workload);
    if (version !== undefined) this.newVersions.set(workload.uid, version);
    if (this.view.control(workload.uid) === undefined) {
      this.putControl(create(ControlRecordSchema, { uid: workload.uid, nextSequence: 1n }));
    }
  }

  putControl(control: ControlRecord): void {
    this.controls.set(control.uid, control);
  }

  /** Returns a copy of the control record of a workload, for a change and {@link putControl}. */
  copyControl(uid: string): ControlRecord {
    const control = this.view.control(uid)?.value;
    return control === undefined
      ? create(ControlRecordSchema, { uid, nextSequence: 1n })
      : clone(ControlRecordSchema, control);
  }

  /** Adds, replaces or removes a node as a change would leave it. */
  putNode(subject: NodeSubject): void {
    this.putNodes([subject]);
  }

  /** Adds, replaces or removes nodes as changes would leave them. */
  putNodes(subjects: readonly NodeSubject[]): void {
    const removed = new Set<string>();
    const lost = new Set<string>();
    for (const subject of subjects) {
      if (subject.kind === 'removed') {
        removed.add(subject.nodeId);
        this.removedNodes.add(subject.nodeId);
        this.schedulerModel.removeNode(toNodeId(subject.nodeId));
        continue;
      }
      const { node } = subject;
      this.nodeRecords.set(node.id, node);
      this.schedulerModel.upsertNode(toSchedulerNode(node, this.nodes.status(node.id)));
      if (subject.kind === 'lost') lost.add(node.id);
    }
    this.changeReplicasOn(removed, () => []);
    const loss = { lost: true, desiredRunning: false, ready: false, phase: Phase.FAILED };
    this.changeReplicasOn(lost, (replica) => [
      holdsResources(replica) ? copyReplica(replica, loss) : replica,
    ]);
  }

  /** Removes a workload with all of its replicas, and releases their resources. */
  deleteWorkload(workload: WorkloadRecord): void {
    const { uid } = workload;
    // Only replicas with a node, or a nomination, hold resources.
    for (const { id, nodeId, nominatedNodeId } of this.replicasOf(uid))
      if (nodeId !== '' || nominatedNodeId !== '') this.release(id);
    this.replicas.set(uid, []);
    this.workloads.set(uid, workload);
  }

  /**
   * Returns true when a replica of the workload has to leave the node: the node is draining, has a
   * taint that the replica does not tolerate, or is lost.
   */
  hasLeavingReplica(uid: string, nodeId: string): boolean {
    const nowMs = this.deps.clock.wallTime();
    return this.replicasOf(uid).some(
      (replica) =>
        replica.nodeId === nodeId &&
        (replica.lost ||
          (holdsResources(replica) && findEviction(this.view, replica, nowMs).draining)),
    );
  }

  /** Returns true when a replica of the workload waits for a node. */
  hasWaitingReplica(uid: string): boolean {
    return this.replicasOf(uid).some(
      ({ desiredRunning, nodeId, phase }) =>
        desiredRunning && nodeId === '' && phase === Phase.PENDING,
    );
  }

  /** Returns all replicas of a workload, including ended and lost replicas. */
  replicasOf(uid: string): readonly ReplicaRecord[] {
    return this.replicas.get(uid) ?? Array.from(this.base.replicasOf(uid), ({ value }) => value);
  }

  /**
   * Returns the ids of the workloads that have a replica on the node. A replica that was ordered to
   * stop does not count.
   */
  workloadIdsOn(nodeId: string): readonly string[] {
    const staysThere = (replica: ReplicaRecord): boolean =>
      replica.nodeId === nodeId && replica.desiredRunning && holdsResources(replica);
    // A workload without predicted replicas has those of the base: no search through all of them.
    const unchanged = [...this.base.replicasOn(nodeId)]
      .map(({ value }) => value)
      .filter((replica) => staysThere(replica) && !this.replicas.has(replica.uid))
      .map(({ uid }) => uid);
    const predicted = [...this.replicas]
      .filter(([, replicas]) => replicas.some(staysThere))
      .map(([uid]) => uid);
    return [...new Set([...unchanged, ...predicted])];
  }

  /**
   * Marks a replica as leaving: the replica holds its resources until {@link release}, but no
   * longer counts for the spread of its workload.
   */
  markLeaving(workload: WorkloadRecord, replica: ReplicaRecord): void {
    const template = this.view.version(workload.uid, replica.version)?.template;
    if (replica.nodeId === '' || template === undefined) return;
    this.schedulerModel.reserve({ ...toReservation(workload, replica, template), leaving: true });
  }

  /**
   * Releases the resources of a replica, as when its agent reports that the replica has stopped.
   */
  release(replicaId: string): void {
    this.schedulerModel.release(toReplicaId(replicaId));
  }

  /**
   * Creates a predicted replica without a node.
   * @param onlyNodeId - The only node that the replica may run on; empty for any node.
   */
  createReplica(workload: WorkloadRecord, version: number, onlyNodeId: string): ReplicaRecord {
    const { uid } = workload;
    const sequence = this.sequences.get(uid) ?? this.view.control(uid)?.value.nextSequence ?? 1n;
    this.sequences.set(uid, sequence + 1n);
    const id = replicaIdOf(toWorkloadId(uid), Number(sequence));
    const init = {
      id,
      uid,
      sequence,
      version,
      onlyNodeId,
      desiredRunning: true,
      phase: Phase.PENDING,
    };
    const created = create(ReplicaRecordSchema, init);
    this.createdReplicas.add(created);
    return created;
  }

  /**
   * Returns the replica as placed and ready, and reserves its resources.
   * @param nodeId - Empty when the budget was exhausted and no node was chosen; then nothing is
   *   reserved.
   */
  placeReplica(workload: WorkloadRecord, replica: ReplicaRecord, nodeId: string): ReplicaRecord {
    // No view holds a predicted replica, so the replica may be changed in place.
    const placed = this.createdReplicas.has(replica)
      ? replica
      : clone(ReplicaRecordSchema, replica);
    Object.assign(placed, { nodeId, phase: Phase.RUNNING, ready: true });
    const template = this.view.version(workload.uid, replica.version)?.template;
    if (nodeId !== '' && template !== undefined)
      this.schedulerModel.reserve(toReservation(workload, placed, template));
    return placed;
  }

  /** Returns the replica with the reason why no node fits, as the placer records the reason. */
  refuseReplica(replica: ReplicaRecord, reason: string): ReplicaRecord {
    return this.createdReplicas.has(replica)
      ? Object.assign(replica, { reason })
      : copyReplica(replica, { reason });
  }

  /**
   * Predicts the preemption for a replica that no node fits: the victims, and the replicas that are
   * leaving the node already, are gone.
   * @returns Undefined when no preemption makes room.
   */
  preempt(request: PlacementRequest, onlyNodeId: string): Preemption | undefined {
    const { schedulerModel, readiness, view, nodes } = this;
    const { clock } = this.deps;
    const findReplica = (id: string, uid: string): ReplicaRecord | undefined =>
      this.replicasOf(uid).find((replica) => replica.id === id);
    const replicasOf = (uid: string): readonly Stored<ReplicaRecord>[] =>
      this.replicasOf(uid).map((value) => ({ value, revision: this.base.revision }));
    const { options } = createPreemptOptions(
      { nodes, clock, readiness, cluster: schedulerModel, view: { ...view, replicasOf } },
      findReplica,
    );
    const decision = schedulerModel.preempt(request, {
      ...options,
      ...(onlyNodeId === '' ? {} : { nodeIds: [toNodeId(onlyNodeId)] }),
    });
    if (decision.kind !== 'preempt') return undefined;
    for (const { replicaId, workloadId } of decision.victims) {
      const victim = findReplica(replicaId, workloadId);
      const stopped = { desiredRunning: false, ready: false, phase: Phase.STOPPED };
      if (victim !== undefined && victim.nodeId !== '')
        this.putReplicas(workloadId, [copyReplica(victim, stopped)]);
      this.release(replicaId);
    }
    for (const { replicaId, leaving } of schedulerModel.reservationsOn(decision.nodeId))
      if (leaving) this.release(replicaId);
    return decision;
  }

  /** Adds replicas to a workload. A replica replaces an earlier replica with the same id. */
  putReplicas(uid: string, replicas: readonly ReplicaRecord[]): void {
    if (replicas.length === 0) return;
    const byId = new Map(
      [...this.replicasOf(uid), ...replicas].map((replica) => [replica.id, replica]),
    );
    this.replicas.set(uid, [...byId.values()]);
  }

  /** Replaces the list of all replicas of a workload. Reserves and releases nothing. */
  setReplicas(uid: string, replicas: readonly ReplicaRecord[]): void {
    this.replicas.set(uid, replicas);
  }

  /**
   * Predicts the state of a workload after the steps of one round: the remaining replicas that have
   * a node are ready and available, and the stopped replicas are gone.
   * @param stopped - Ids of the replicas that the steps stop.
   * @param changed - Replicas that the steps created or placed.
   */
  settleReplicas(
    uid: string,
    stopped: ReadonlySet<string>,
    changed: readonly ReplicaRecord[],
  ): void {
    const changedIds = new Set(changed.map(({ id }) => id));
    const others = this.replicasOf(uid).filter(({ id }) => !stopped.has(id) && !changedIds.has(id));
    const settled = others.flatMap((replica) => {
      if (!isLive(replica) || replica.lost) return [replica];
      if (!replica.desiredRunning) {
        this.release(replica.id);
        return [];
      }
      return [
        replica.ready || replica.nodeId === ''
          ? replica
          : copyReplica(replica, { phase: Phase.RUNNING, ready: true }),
      ];
    });
    const replicas = [...settled, ...changed].sort((a, b) => Number(a.sequence - b.sequence));
    this.replicas.set(uid, replicas);
    for (const replica of replicas) if (replica.ready) this.predictedReadyIds.add(replica.id);
  }

  /** Replaces each replica on some nodes, and releases its resources. */
  private changeReplicasOn(
    nodeIds: ReadonlySet<string>,
    change: (replica: ReplicaRecord) => readonly ReplicaRecord[],
  ): void {
    const uids = new Set([...nodeIds].flatMap((nodeId) => this.workloadIdsOn(nodeId)));
    for (const uid of uids) {
      const replicas = this.replicasOf(uid);
      for (const { id, nodeId } of replicas) if (nodeIds.has(nodeId)) this.release(id);
      this.replicas.set(
        uid,
        replicas.flatMap((replica) => (nodeIds.has(replica.nodeId) ? change(replica) : [replica])),
      );
    }
  }

  private createOverlay(): DryRunView {
    const { base } = this;
    const toStored = <Value>(value: Value): Stored<Value> => ({ value, revision: base.revision });
    const preferPredicted = <Value>(
      predicted: Value | undefined,
      findExisting: () => Stored<Value> | undefined,
    ): Stored<Value> | undefined =>
      predicted === undefined ? findExisting() : toStored(predicted);
    return {
      workload: (uid) => preferPredicted(this.workloads.get(uid), () => base.workload(uid)),
      control: (uid) => preferPredicted(this.controls.get(uid), () => base.control(uid)),
      node: (id) =>
        this.removedNodes.has(id)
          ? undefined
          : preferPredicted(this.nodeRecords.get(id), () => base.node(id)),
      version: (uid, version) => {
        const newVersion = this.newVersions.get(uid);
        return newVersion?.version === version ? newVersion : base.version(uid, version);
      },
    };
  }
}
