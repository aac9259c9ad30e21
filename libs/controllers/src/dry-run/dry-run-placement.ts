import { create } from '@bufbuild/protobuf';
import { WorkloadSpecSchema } from '@cloudless/api';
import type { ReplicaRecord, WorkloadRecord } from '@cloudless/api/store';
import type { NodeId } from '@cloudless/base';
import { toCanonicalVersion } from '@cloudless/cluster-state';
import type { RolloutObserved } from '@cloudless/rollout';
import { describeSuggestion, type PlacementRequest } from '@cloudless/scheduler';
import {
  decideAny,
  decideBound,
  decideSet,
  type PlacementDecision,
  type ReplicaDecision,
} from '../placement/placement-decision.js';
import { findLeftNodes } from '../placement/place-away.js';
import { toPlacementRequest } from '../placement/scheduler-input.js';
import { PredictedVictims } from '../preemption/predicted-victims.js';
import { HIGHEST_PRIORITY_WITHOUT_PREEMPTION } from '../preemption/waiting-preemptors.js';
import type { DryRunCluster } from './dry-run-cluster.js';

/** Replicas that are placed or refused between two pauses, which takes about 10 ms. */
const PLACED_PER_SLICE = 1_000;

/** Predicts the nodes of a workload's new replicas with the decisions of the placer. */
export class DryRunPlacement {
  readonly placements: { readonly nodeId: string; readonly score: number }[] = [];
  /** Existing or predicted replicas without a node. */
  unplaced: readonly ReplicaRecord[] = [];
  /** Reason why no node fits the last of {@link unplaced}. */
  reason = '';
  /** Replicas that would be preempted. */
  readonly preempted: PredictedVictims = new PredictedVictims();
  private refusedRequest: PlacementRequest | undefined;
  /** Number of replicas whose placement was not predicted: the budget of the plan was exhausted. */
  notPredicted = 0;
  /** Ids of the replicas that no node fitted before the change. */
  private readonly waitedBefore: ReadonlySet<string>;

  /** @param replicas - The simulated replicas of the workload as before the change. */
  constructor(
    private readonly cluster: DryRunCluster,
    private readonly workload: WorkloadRecord,
    replicas: readonly ReplicaRecord[],
  ) {
    // A replica without a reason has not been refused yet.
    this.waitedBefore = new Set(
      replicas.flatMap(({ id, nodeId, reason }) => (nodeId === '' && reason !== '' ? [id] : [])),
    );
  }

  /** Returns how many of {@link unplaced} waited before: the placer had refused them. */
  countWaitedBefore(): number {
    return this.unplaced.filter(({ id }) => this.waitedBefore.has(id)).length;
  }

  /**
   * Predicts the decisions of the placer. Replaces {@link unplaced} by the replicas that no node
   * fits. Yields whenever other work should run.
   * @returns The placed replicas, also those whose node was not predicted.
   */
  *placeReplicas(
    replicas: readonly ReplicaRecord[],
    observed: RolloutObserved,
  ): Generator<void, readonly ReplicaRecord[]> {
    let decided = 0;
    const placed: ReplicaRecord[] = [];
    const unplaced: ReplicaRecord[] = [];
    for (const [version, group] of groupByVersion(replicas, (number) =>
      toCanonicalVersion(this.cluster.view, this.workload.uid, number),
    )) {
      if (!this.cluster.budget.consumeDecision()) {
        this.notPredicted += group.length;
        placed.push(
          ...group.map((replica) => this.cluster.placeReplica(this.workload, replica, '')),
        );
        continue;
      }
      const request = this.createRequest(version);
      const mayPreempt =
        (request.priority ?? 0) > HIGHEST_PRIORITY_WITHOUT_PREEMPTION &&
        !isNewSet(version, observed);
      for (const decision of this.decide(version, request, group, observed).decided) {
        decided += 1;
        if (decided % PLACED_PER_SLICE === 0) yield;
        const { replica } = decision;
        const outcome = mayPreempt ? this.preemptIfRefused(request, decision) : decision.outcome;
        if ('reason' in outcome) {
          unplaced.push(this.cluster.refuseReplica(replica.value, outcome.reason));
          this.reason = shortenReason(outcome.reason);
          this.refusedRequest = request;
        } else {
          this.placements.push({ nodeId: outcome.nodeId, score: outcome.score });
          placed.push(this.cluster.placeReplica(this.workload, replica.value, outcome.nodeId));
        }
      }
    }
    this.unplaced = unplaced;
    return placed;
  }

  /**
   * Returns the smallest change after which a node fits the last of {@link unplaced}; an empty text
   * when none is known, and when the rest of the budget of the plan is too small.
   */
  suggestChange(): string {
    if (this.refusedRequest === undefined || !this.cluster.budget.consumeSuggestion()) return '';
    const suggestion = this.cluster.schedulerModel.suggest(this.refusedRequest);
    return suggestion === undefined ? '' : describeSuggestion(suggestion);
  }

  /**
   * Returns true when a node fits a replica of a version now, or preemption may make room. Changes
   * nothing. Unknown without budget for a decision: then false.
   */
  isPlaceable(version: number): boolean {
    const request = this.createRequest(version);
    if ((request.priority ?? 0) > HIGHEST_PRIORITY_WITHOUT_PREEMPTION) return true;
    if (!this.cluster.budget.consumeDecision()) return false;
    return this.cluster.schedulerModel.place(request, 1)[0]?.placed === true;
  }

  private createRequest(version: number): PlacementRequest {
    const { uid, spec } = this.workload;
    return toPlacementRequest(
      this.workload,
      this.cluster.view.version(uid, version)?.template ?? spec ?? create(WorkloadSpecSchema),
    );
  }

  private findLeftNodes(version: number): readonly NodeId[] {
    const { view } = this.cluster;
    const control = view.control(this.workload.uid)?.value;
    return findLeftNodes(view, control, version, this.cluster.wallTime());
  }

  /** Predicts the preemption for a replica that no node fits. */
  private preemptIfRefused(
    request: PlacementRequest,
    { replica, outcome }: ReplicaDecision,
  ): ReplicaDecision['outcome'] {
    if (!('reason' in outcome) || !this.cluster.budget.consumeDecision()) return outcome;
    // The replica may hold resources by a nomination.
    this.cluster.release(replica.value.id);
    const preemption = this.cluster.preempt(request, replica.value.onlyNodeId);
    if (preemption === undefined) return outcome;
    const { nodeId, victims } = preemption;
    const [placement] = this.cluster.schedulerModel.placeOn(request, [nodeId]);
    if (placement?.placed !== true) return outcome;
    for (const { workloadId } of victims) this.preempted.add(nodeId, workloadId);
    return { nodeId, score: placement.score };
  }

  private decide(
    version: number,
    request: PlacementRequest,
    group: readonly ReplicaRecord[],
    observed: RolloutObserved,
  ): PlacementDecision {
    const { schedulerModel } = this.cluster;
    const replicas = group.map((value) => ({ value, revision: 0n }));
    if (group.some(({ onlyNodeId }) => onlyNodeId !== ''))
      return decideBound(schedulerModel, request, replicas);
    return isNewSet(version, observed)
      ? decideSet(schedulerModel, request, replicas, {
          size: observed.want,
          missing: group.length,
          complete: true,
        })
      : decideAny(schedulerModel, request, replicas, group.length, this.findLeftNodes(version));
  }
}

/** Returns true for the version of a blue/green set that does not serve yet. */
function isNewSet(version: number, { strategy }: RolloutObserved): boolean {
  return strategy?.kind === 'blueGreen' && version !== strategy.activeVersion;
}

/** Removes the prefix that would repeat the warning of the plan about unplaced replicas. */
function shortenReason(reason: string): string {
  return reason.replace(/^no node fits: /, '');
}

function groupByVersion(
  replicas: readonly ReplicaRecord[],
  toCanonical: (version: number) => number,
): ReadonlyMap<number, readonly ReplicaRecord[]> {
  const groups = new Map<number, ReplicaRecord[]>();
  for (const replica of replicas) {
    const version = toCanonical(replica.version);
    const group = groups.get(version);
    if (group === undefined) groups.set(version, [replica]);
    else group.push(replica);
  }
  return groups;
}
