import { create } from '@bufbuild/protobuf';
import {
  PlanOutcome_Kind as OutcomeKind,
  WorkloadPlanSchema,
  WorkloadPlan_Action as Action,
  type PlanWarning,
  type WorkloadPlan,
} from '@cloudless/api';
import type {
  ControlRecord,
  NodeRecord,
  ReplicaRecord,
  WorkloadRecord,
} from '@cloudless/api/store';
import { assert } from '@cloudless/base';
import {
  isLive,
  toEffectiveNode,
  type NodeSubject,
  type PlanSubject,
} from '@cloudless/cluster-state';
import { isGlobal } from '../rollout/global-targets.js';
import {
  warnDeletion,
  warnForcedDrain,
  warnIncomplete,
  warnIncompleteMove,
  warnMinAvailable,
  warnMoveWait,
  warnSuperseded,
} from './plan-warnings.js';
import type { DryRunResult } from './dry-run-result.js';
import { simulateRollout } from './simulate-rollout.js';
import { DryRunCluster } from './dry-run-cluster.js';
import { PlacementBudget } from './placement-budget.js';
import { putPredictedWorkload } from './predicted-workload.js';
import type { SimulationSource } from './simulation-source.js';

/**
 * Most steps in the plan of a deletion, more than any answer shows: the steps are all alike, and a
 * workload may have a million replicas.
 */
const MAX_DELETION_STEPS = 1_000;

/** Replicas of a deletion that are read between two pauses, which takes about 10 ms. */
const DELETED_PER_SLICE = 10_000;

/**
 * Predicts changes one after the other, each on the predicted state after the changes before.
 * Commits nothing. Each prediction yields whenever other work should run.
 */
export class DryRunPlanner {
  private readonly cluster: DryRunCluster;
  /** The cluster without the predicted changes. Undefined while no node is changed. */
  private unchangedCluster: DryRunCluster | undefined;
  private readonly budget: PlacementBudget;
  /** Ids of the workloads whose effect was predicted. */
  private readonly predictedIds = new Set<string>();
  /** Ids of the workloads with replicas on a changed node, by node id, as before the change. */
  private readonly workloadIdsByNode = new Map<string, readonly string[]>();

  /**
   * @param source - The state to predict from. It must stay the same as long as the planner is
   *   used, and its model is copied now.
   */
  constructor(private readonly source: SimulationSource) {
    let nodeCount = 0;
    for (const _node of source.view.nodes()) nodeCount += 1;
    this.budget = new PlacementBudget(nodeCount);
    this.cluster = this.createCluster();
  }

  /**
   * Predicts a change of one workload: the difference of the specs, the steps in order with the
   * counts of ready and live replicas after each step, the nodes of new replicas, and warnings.
   */
  *planChange(subject: PlanSubject): Generator<void, WorkloadPlan> {
    const { current } = subject;
    const control = current === undefined ? undefined : this.cluster.copyControl(current.uid);
    const {
      workload: predicted,
      changes,
      newVersion,
    } = putPredictedWorkload(this.cluster, this.source.view, subject, this.source.clock.wallTime());
    const result = yield* this.simulate(predicted);
    return create(WorkloadPlanSchema, {
      ...this.toPlanFields(predicted, result),
      action:
        current === undefined ? Action.CREATE : changes.length > 0 ? Action.UPDATE : Action.NOTHING,
      changes: changes.map((change) => ({
        path: change.path,
        before: toJson(change.before),
        after: toJson(change.after),
      })),
      newVersion,
      generation: current?.generation ?? 0n,
      ...toWarningFields([
        ...(newVersion ? warnSuperseded(control, predicted.version) : []),
        ...(changes.length > 0 ? warnMinAvailable(subject.spec) : []),
        ...warnIncomplete(result),
      ]),
    });
  }

  /** Predicts the deletion of a workload: all replicas stop, and release their resources. */
  *planDeletion(workload: WorkloadRecord): Generator<void, WorkloadPlan> {
    const { uid } = workload;
    this.predictedIds.add(uid);
    const counts = { live: 0, ready: 0, running: 0 };
    const first: ReplicaRecord[] = [];
    for (const [index, replica] of this.cluster.replicasOf(uid).entries()) {
      if (index > 0 && index % DELETED_PER_SLICE === 0) yield;
      if (!isLive(replica) || replica.lost) continue;
      counts.live += 1;
      if (replica.ready && replica.desiredRunning) counts.ready += 1;
      if (replica.nodeId !== '' && replica.desiredRunning) counts.running += 1;
      if (first.length < MAX_DELETION_STEPS) first.push(replica);
    }
    let { ready } = counts;
    const steps = first.map((replica) => {
      if (replica.ready && replica.desiredRunning) ready -= 1;
      return { description: `stop 1 of version ${replica.version}`, ready, live: counts.live };
    });
    this.cluster.deleteWorkload(workload);
    return create(WorkloadPlanSchema, {
      namespace: workload.namespace,
      name: workload.name,
      action: Action.DELETE,
      generation: workload.generation,
      steps,
      totalSteps: counts.live,
      readyBefore: counts.ready,
      highestLive: counts.live,
      outcome: { kind: OutcomeKind.DELETED, message: 'the workload is gone' },
      ...toWarningFields(warnDeletion(counts.running)),
    });
  }

  /**
   * Predicts that a rollout is paused, resumed or promoted.
   * @param control - The control record as the change would leave it.
   */
  *planRollout(
    action: Action,
    workload: WorkloadRecord,
    control: ControlRecord,
  ): Generator<void, WorkloadPlan> {
    this.cluster.putControl(control);
    const result = yield* this.simulate(workload);
    // A pause is meant to stop the rollout.
    const isPause = action === Action.PAUSE;
    const steps = isPause ? result.steps.filter(({ blocked }) => blocked !== true) : result.steps;
    return create(WorkloadPlanSchema, {
      ...this.toPlanFields(workload, { ...result, steps }),
      action,
      generation: workload.generation,
      ...toWarningFields([
        ...(isPause ? [] : warnIncomplete(result)),
        ...(action === Action.MOVE ? warnMoveWait(result, 'the move') : []),
      ]),
    });
  }

  /**
   * Adds a node as a change would leave it, for all further predictions. Call it for all nodes in
   * the turn of the event loop in which the planner is created, before any prediction.
   */
  putNode(subject: NodeSubject): void {
    this.unchangedCluster ??= this.createCluster();
    const nodeId = subject.kind === 'removed' ? subject.nodeId : subject.node.id;
    this.workloadIdsByNode.set(nodeId, this.cluster.workloadIdsOn(nodeId));
    this.cluster.putNode(subject);
  }

  /**
   * Predicts the effect of the change of a node: the steps of each workload whose replicas leave
   * the node, or are placed because the node has changed, sorted by name. Workloads that were
   * predicted before are omitted.
   * @param nodeId - A node that was passed to {@link putNode}.
   */
  *planMoves(nodeId: string): Generator<void, readonly WorkloadPlan[]> {
    const before = this.workloadIdsByNode.get(nodeId) ?? [];
    const node = this.cluster.view.node(nodeId)?.value;
    const leaving = before.filter(
      (uid) => node === undefined || this.cluster.hasLeavingReplica(uid, nodeId),
    );
    const workloads = [...new Set([...leaving, ...this.listOtherAffected()])]
      .filter((uid) => !this.predictedIds.has(uid))
      .flatMap((uid) => this.cluster.view.workload(uid)?.value ?? [])
      .filter((workload) => workload.deletionRequestedAt === undefined)
      .sort((a, b) => (formatName(a) < formatName(b) ? -1 : 1));
    const plans: WorkloadPlan[] = [];
    for (const workload of workloads)
      plans.push(...(yield* this.planMove(workload, node, leaving.includes(workload.uid))));
    return plans;
  }

  /** Returns the ids of the workloads that any change of a node may place or stop. */
  private listOtherAffected(): readonly string[] {
    return [...this.source.view.workloads()]
      .map(({ value }) => value)
      .filter(({ uid, spec }) => isGlobal(spec) || this.cluster.hasWaitingReplica(uid))
      .map(({ uid }) => uid);
  }

  /**
   * @param node - Undefined when the node is removed.
   * @param isLeaving - True when replicas of the workload leave the node. The plan of another
   *   workload is omitted when the same would happen without the change, and when the budget of
   *   the plan is exhausted: then a workload before has the warning NOT_PREDICTED.
   */
  private *planMove(
    workload: WorkloadRecord,
    node: NodeRecord | undefined,
    isLeaving: boolean,
  ): Generator<void, readonly WorkloadPlan[]> {
    if (!isLeaving && this.budget.isExhausted) return [];
    let result = yield* this.simulate(workload);
    if (!isLeaving) {
      const unchanged = yield* this.simulateUnchanged(workload);
      const larger = unchanged.notPredicted > result.notPredicted ? unchanged : result;
      const { notPredicted, notPredictedReason } = larger;
      if (notPredicted === 0 && isSameEffect(result, unchanged)) return [];
      result = { ...result, notPredicted, notPredictedReason };
    }
    const isDrain = isLeaving && node?.draining === true;
    // A replica without a node does not keep a node from being drained when its predecessor ended.
    const isUnfinished = isDrain && this.cluster.hasLeavingReplica(workload.uid, node.id);
    return [
      create(WorkloadPlanSchema, {
        ...this.toPlanFields(workload, result),
        action: Action.MOVE,
        generation: workload.generation,
        ...toWarningFields([
          ...(isDrain && node.drain?.force === true ? warnForcedDrain(result) : []),
          ...warnIncompleteMove(
            result,
            isUnfinished ? `the drain of ${node.id} would not finish: ` : '',
          ),
          ...(isLeaving
            ? warnMoveWait(result, isDrain ? `the drain of ${node.id}` : 'the move')
            : []),
        ]),
      }),
    ];
  }

  private simulate(workload: WorkloadRecord): Generator<void, DryRunResult> {
    this.predictedIds.add(workload.uid);
    return simulateRollout(this.cluster, this.source, workload);
  }

  /**
   * Predicts what happens to a workload without the changes. All these workloads share one cluster,
   * as in the prediction with the changes: a workload takes the resources that an earlier one left.
   */
  private simulateUnchanged(workload: WorkloadRecord): Generator<void, DryRunResult> {
    assert(this.unchangedCluster !== undefined, 'a node was put before its moves are planned');
    return simulateRollout(this.unchangedCluster, this.source, workload);
  }

  private createCluster(): DryRunCluster {
    const { source, budget } = this;
    return new DryRunCluster({ ...source, state: { view: () => source.view } }, budget);
  }

  private toPlanFields({ namespace, name }: WorkloadRecord, result: DryRunResult) {
    const { steps, omittedSteps, placements, unplaced, unplacedReason, minAvailable } = result;
    const { readyBefore, lowestReady, highestLive, outcome } = result;
    return {
      namespace,
      name,
      placements: placements.map(({ nodeId, score }) => ({
        nodeId,
        zone: this.getZone(nodeId),
        score,
      })),
      totalPlacements: placements.length,
      unplaced,
      unplacedReason,
      steps: steps.map((step) => ({ ...step })),
      totalSteps: steps.length + omittedSteps,
      readyBefore,
      lowestReady,
      highestLive,
      minAvailable,
      outcome,
    };
  }

  private getZone(nodeId: string): string {
    const node = this.cluster.view.node(nodeId)?.value;
    return node === undefined ? '' : toEffectiveNode(node).zone;
  }
}

/** Returns true when two predictions make the same steps and placements. */
function isSameEffect(a: DryRunResult, b: DryRunResult): boolean {
  const toTexts = ({ steps, placements }: DryRunResult): string =>
    JSON.stringify([
      steps.filter(({ blocked }) => blocked !== true),
      placements.map(({ nodeId }) => nodeId),
    ]);
  return toTexts(a) === toTexts(b);
}

/** Returns the warnings of a plan, as texts and with their kinds. */
function toWarningFields(warnings: readonly PlanWarning[]) {
  return {
    warnings: warnings.map(({ message }) => message),
    warningDetails: [...warnings],
  };
}

function toJson(value: unknown): string {
  return value === undefined ? '' : JSON.stringify(value);
}

function formatName({ namespace, name }: WorkloadRecord): string {
  return `${namespace}/${name}`;
}
