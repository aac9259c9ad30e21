import { create } from '@bufbuild/protobuf';
import {
  PlanOutcomeSchema,
  PlanOutcome_Kind as OutcomeKind,
  SimulateClusterResponseSchema,
  SimulatedWorkloadSchema,
  type SimulateClusterResponse,
  type SimulatedCapacity,
  type SimulatedWorkload,
} from '@cloudless/api';
import type { ReplicaRecord, WorkloadRecord } from '@cloudless/api/store';
import {
  createServingFilter,
  getZone,
  holdsResources,
  waitsForNode,
  type NodeSubject,
  type SimulatedChanges,
} from '@cloudless/cluster-state';
import { DEFAULT_PRIORITY, type Cluster } from '@cloudless/scheduler';
import { DryRunCluster } from '../dry-run/dry-run-cluster.js';
import { PlacementBudget, type PlacementLimits } from '../dry-run/placement-budget.js';
import { putPredictedWorkload } from '../dry-run/predicted-workload.js';
import type { DryRunResult } from '../dry-run/dry-run-result.js';
import { simulateRollout } from '../dry-run/simulate-rollout.js';
import { isGlobal } from '../rollout/global-targets.js';
import type { SimulationSource } from '../dry-run/simulation-source.js';
import { summarizeCapacity } from './capacity-summary.js';
import { copyModel } from './copy-model.js';
import { ALIVE_NODE_STATUS } from './record-source.js';
import { listReplicaMoves, type ReplicaMove } from './replica-moves.js';
import { formatMoves } from './simulated-moves.js';

/**
 * Limits of a simulation that runs beside other work. A slice is a fraction of what one plan may
 * evaluate, so that the event loop is not blocked for longer than by a plan.
 */
export const SIMULATION_LIMITS: PlacementLimits = { slice: 15_000, total: 2_000_000 };
/** Work after which a simulation lets other work run, in node evaluations. */
const SLICE_WORK = 5_000;
/** Work to predict the rollout of one replica, in node evaluations. */
const WORK_PER_REPLICA = 4;

/** Most workloads in a result. */
const MAX_WORKLOADS = 1_000;

/** Result of a simulation for one workload. */
interface Prediction {
  readonly floor: number;
  readonly minAvailable: number;
  readonly waiting: number;
  readonly waitingReason: string;
  readonly notPredicted: number;
  readonly preempts: string;
  readonly suggestChange: () => string;
  readonly outcome: DryRunResult['outcome'];
}

/**
 * Predicts the effect of changes on a whole cluster, on a copy. Assumes what a dry run assumes: new
 * replicas become ready, stops are confirmed, waits and gates pass, promotions are granted.
 * @param limits - Default: {@link SIMULATION_LIMITS}.
 * @returns The result. Yields whenever other work should run before the simulation continues.
 */
export function* simulateCluster(
  source: SimulationSource,
  changes: SimulatedChanges,
  limits = SIMULATION_LIMITS,
): Generator<void, SimulateClusterResponse> {
  const model = yield* copyModel(source);
  return yield* new ClusterSimulation(source, model, changes, limits).run();
}

class ClusterSimulation {
  private readonly cluster: DryRunCluster;
  private readonly budget: PlacementBudget;
  private readonly capacityBefore: SimulatedCapacity;
  private readonly predictions = new Map<string, Prediction>();
  /** Ids of the workloads that the changes are about, or whose replicas the changes move. */
  private readonly affected = new Set<string>();
  private readonly hasChanges: boolean;
  /** Workloads with preempted replicas that are not predicted again yet. */
  private readonly unsettled = new Set<string>();
  /** Number of preempted replicas, by the uid of their workload. */
  private readonly preempted = new Map<string, number>();

  /**
   * Applies the changes.
   * @param model - A copy of the model of the source. The simulation changes the copy.
   */
  constructor(
    private readonly source: SimulationSource,
    model: Cluster,
    private readonly changes: SimulatedChanges,
    limits: PlacementLimits,
  ) {
    const { view } = source;
    const { nodes, addedNodes, workloads, deletions } = changes;
    const nodeIds = [...view.nodes()].map(({ value }) => value.id);
    this.budget = new PlacementBudget(nodeIds.length + addedNodes.length, limits);
    this.hasChanges = [nodes, addedNodes, workloads, deletions].some(({ length }) => length > 0);
    const added = new Set(addedNodes.map(({ id }) => id));
    this.cluster = new DryRunCluster(
      {
        ...source,
        cluster: model,
        ownsModel: true,
        state: { view: () => view },
        nodes: {
          isAlive: (id) => added.has(id) || source.nodes.isAlive(id),
          status: (id) => (added.has(id) ? ALIVE_NODE_STATUS : source.nodes.status(id)),
        },
      },
      this.budget,
    );
    this.capacityBefore = summarizeCapacity(model, nodeIds);
    this.applyChanges();
  }

  *run(): Generator<void, SimulateClusterResponse> {
    if (!this.hasChanges) return this.createResponse();
    yield* this.predictAll(this.listCandidates());
    yield* this.settlePreempted();
    // Replicas that have stopped leave capacity for replicas that no node fitted before.
    const waiting = [...this.predictions]
      .filter(([, prediction]) => prediction.waiting > 0)
      .flatMap(([uid]) => this.cluster.view.workload(uid)?.value ?? []);
    yield* this.predictAll(sortByUrgency(waiting));
    yield* this.settlePreempted();
    return this.createResponse();
  }

  /**
   * Predicts the replacements of preempted replicas, which may preempt others in turn. That ends, as
   * the priorities of victims are always lower than those of their preemptors.
   */
  private *settlePreempted(): Generator<void, void> {
    while (this.unsettled.size > 0) {
      const workloads = [...this.unsettled].flatMap(
        (uid) => this.cluster.view.workload(uid)?.value ?? [],
      );
      this.unsettled.clear();
      yield* this.predictAll(sortByUrgency(workloads));
    }
  }

  private applyChanges(): void {
    const { view, clock } = this.source;
    const { nodes, addedNodes, workloads, deletions } = this.changes;
    for (const subject of nodes)
      for (const uid of this.cluster.workloadIdsOn(getNodeId(subject)))
        if (isLeft(subject)) this.affected.add(uid);
    this.cluster.putNodes([
      ...nodes,
      ...addedNodes.map((node) => ({ kind: 'changed', node }) as const),
    ]);
    for (const workload of deletions) {
      this.affected.add(workload.uid);
      this.cluster.deleteWorkload(workload);
    }
    for (const subject of workloads) {
      const { workload } = putPredictedWorkload(this.cluster, view, subject, clock.wallTime());
      this.affected.add(workload.uid);
    }
  }

  /** Returns the workloads that may change, the most urgent first, as the placer places them. */
  private listCandidates(): readonly WorkloadRecord[] {
    const { view } = this.source;
    const uids = new Set(this.affected);
    for (const { value } of view.unplaced()) uids.add(value.uid);
    for (const { value } of view.workloads()) if (isGlobal(value.spec)) uids.add(value.uid);
    const deleted = new Set(this.changes.deletions.map(({ uid }) => uid));
    return sortByUrgency(
      [...uids]
        .filter((uid) => !deleted.has(uid))
        .flatMap((uid) => this.cluster.view.workload(uid)?.value ?? [])
        .filter(({ deletionRequestedAt }) => deletionRequestedAt === undefined),
    );
  }

  private *predictAll(workloads: readonly WorkloadRecord[]): Generator<void, void> {
    let work = 0;
    for (const workload of workloads) {
      if (work >= SLICE_WORK) {
        work = 0;
        yield;
      }
      const evaluatedBefore = this.budget.evaluations;
      this.budget.beginSlice();
      yield* this.predict(workload);
      work += this.budget.evaluations - evaluatedBefore;
      work += WORK_PER_REPLICA * this.cluster.replicasOf(workload.uid).length;
    }
  }

  private *predict(workload: WorkloadRecord): Generator<void, void> {
    const { clock } = this.source;
    const earlier = this.predictions.get(workload.uid);
    const result = yield* simulateRollout(this.cluster, { clock }, workload);
    const { minAvailable, unplaced, unplacedReason, outcome, suggestChange } = result;
    for (const [uid, replicas] of result.victims) {
      this.unsettled.add(uid);
      this.preempted.set(uid, (this.preempted.get(uid) ?? 0) + replicas);
    }
    this.predictions.set(workload.uid, {
      floor: Math.min(earlier?.floor ?? Infinity, result.readyBefore, result.lowestReady),
      minAvailable,
      waiting: unplaced,
      waitingReason: unplacedReason,
      notPredicted: result.notPredicted + (earlier?.notPredicted ?? 0),
      preempts: [earlier?.preempts ?? '', result.preempts].filter((text) => text !== '').join('; '),
      suggestChange,
      outcome,
    });
  }

  private createResponse(): SimulateClusterResponse {
    const { view } = this.source;
    const waitingBefore = [...view.unplaced()].map(({ value }) => value);
    const uids = new Set([
      ...this.affected,
      ...this.preempted.keys(),
      ...this.predictions.keys(),
      ...waitingBefore.map(({ uid }) => uid),
    ]);
    const effects = [...uids]
      .flatMap((uid) => {
        const workload = this.cluster.view.workload(uid)?.value;
        return workload === undefined ? [] : [this.describeWorkload(workload)];
      })
      .filter(({ isShown }) => isShown)
      .sort((a, b) => (formatName(a.workload) < formatName(b.workload) ? -1 : 1));
    const shown = effects.slice(0, MAX_WORKLOADS);
    for (const effect of shown) this.addSuggestion(effect);
    const sum = (count: (workload: SimulatedWorkload) => number): number =>
      effects.reduce((total, { workload }) => total + count(workload), 0);
    return create(SimulateClusterResponseSchema, {
      revision: view.revision,
      workloads: shown.map(({ workload }) => workload),
      totalWorkloads: effects.length,
      ...formatMoves(effects, (nodeId) => this.getZoneOf(nodeId)),
      before: this.capacityBefore,
      after: summarizeCapacity(this.cluster.schedulerModel, this.listNodeIds()),
      waitingBefore: waitingBefore.length,
      waitingAfter: sum(({ waiting }) => waiting),
      notPredicted: sum(({ notPredicted }) => notPredicted),
    });
  }

  /** Describes the effect on a workload; `isShown` is false when there is none and none waits. */
  private describeWorkload(record: WorkloadRecord): WorkloadEffect {
    const { uid, namespace, name } = record;
    const before = [...this.source.view.replicasOf(uid)].map(({ value }) => value);
    const after = this.cluster.replicasOf(uid);
    const moves = listReplicaMoves(before, after);
    const waiting = after.filter((replica) => !replica.lost && waitsForNode(replica));
    const prediction = this.predictions.get(uid);
    const readyBefore = countServing(this.source.view, uid, before);
    const readyAfter = prediction?.outcome.ready ?? countServing(this.cluster.view, uid, after);
    const isDeleted = this.changes.deletions.some((deleted) => deleted.uid === uid);
    const workload = create(SimulatedWorkloadSchema, {
      namespace,
      name,
      desired: isDeleted ? 0 : (prediction?.outcome.desired ?? record.spec?.replicas ?? 1),
      readyBefore,
      readyAfter,
      floor: Math.min(prediction?.floor ?? readyAfter, readyBefore),
      minAvailable: isDeleted ? 0 : (prediction?.minAvailable ?? 0),
      leaving: moves.filter(({ leaving }) => leaving !== undefined).length,
      placed: moves.filter(({ arriving }) => arriving !== undefined).length,
      waiting: prediction?.waiting ?? waiting.length,
      waitingReason:
        prediction?.waitingReason ?? waiting.find(({ reason }) => reason !== '')?.reason ?? '',
      notPredicted: prediction?.notPredicted ?? 0,
      preempts: prediction?.preempts ?? '',
      preempted: this.preempted.get(uid) ?? 0,
      outcome: isDeleted
        ? create(PlanOutcomeSchema, { kind: OutcomeKind.DELETED, message: 'the workload is gone' })
        : (prediction?.outcome ?? create(PlanOutcomeSchema, { kind: OutcomeKind.STAYS })),
    });
    const isShown =
      moves.length > 0 ||
      workload.waiting > 0 ||
      workload.notPredicted > 0 ||
      this.affected.has(uid);
    return { workload, moves, isShown, suggestChange: prediction?.suggestChange };
  }

  private addSuggestion({ workload, suggestChange }: WorkloadEffect): void {
    if (workload.waiting === 0 || suggestChange === undefined) return;
    this.budget.beginSlice();
    workload.suggestion = suggestChange();
  }

  private *listNodeIds(): Generator<string> {
    for (const { value } of this.source.view.nodes()) yield value.id;
    for (const { id } of this.changes.addedNodes) yield id;
  }

  private getZoneOf(nodeId: string): string {
    const node = this.cluster.view.node(nodeId)?.value ?? this.source.view.node(nodeId)?.value;
    return node === undefined ? '' : getZone(node);
  }
}

/** The effect of a simulation on one workload. */
interface WorkloadEffect {
  readonly workload: SimulatedWorkload;
  readonly moves: readonly ReplicaMove[];
  readonly isShown: boolean;
  readonly suggestChange: (() => string) | undefined;
}

/** Orders by priority, highest first, then by age, oldest first, as the placer does. */
function sortByUrgency(workloads: readonly WorkloadRecord[]): readonly WorkloadRecord[] {
  const getAge = ({ createdAt }: WorkloadRecord): bigint =>
    createdAt?.seconds ?? BigInt(Number.MAX_SAFE_INTEGER);
  return [...workloads].sort(
    (a, b) =>
      (b.spec?.priority ?? DEFAULT_PRIORITY) - (a.spec?.priority ?? DEFAULT_PRIORITY) ||
      Number(getAge(a) - getAge(b)) ||
      (a.uid < b.uid ? -1 : 1),
  );
}

/** Returns true when replicas leave the node. */
function isLeft(subject: NodeSubject): boolean {
  return subject.kind !== 'changed' || subject.node.draining;
}

function getNodeId(subject: NodeSubject): string {
  return subject.kind === 'removed' ? subject.nodeId : subject.node.id;
}

function countServing(
  view: Parameters<typeof createServingFilter>[0],
  uid: string,
  replicas: readonly ReplicaRecord[],
): number {
  const serves = createServingFilter(view, uid);
  return replicas.filter(
    (replica) =>
      replica.ready && replica.desiredRunning && holdsResources(replica) && serves(replica),
  ).length;
}

function formatName({ namespace, name }: SimulatedWorkload): string {
  return `${namespace}/${name}`;
}
