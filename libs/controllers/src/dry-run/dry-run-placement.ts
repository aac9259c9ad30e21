import { create } from '@bufbuild/protobuf';
import { WorkloadSpecSchema } from '@cloudless/api';
import type { ReplicaRecord, WorkloadRecord } from '@cloudless/api/store';
import { toCanonicalVersion } from '@cloudless/cluster-state';
import type { RolloutObserved } from '@cloudless/rollout';
import { describeSuggestion, type PlacementRequest } from '@cloudless/scheduler';
import {
  decideAny,
  decideBound,
  decideSet,
  type PlacementDecision,
} from '../placement/placement-decision.js';
import { toPlacementRequest } from '../placement/scheduler-input.js';
import type { DryRunCluster } from './dry-run-cluster.js';

/** Predicts the nodes of a workload's new replicas with the decisions of the placer. */
export class DryRunPlacement {
  readonly placements: { readonly nodeId: string; readonly score: number }[] = [];
  /** Existing or predicted replicas without a node. */
  unplaced: readonly ReplicaRecord[] = [];
  /** Reason why no node fits the last of {@link unplaced}. */
  reason = '';
  private refusedRequest: PlacementRequest | undefined;
  /** Number of replicas whose placement was not predicted: the budget of the plan was exhausted. */
  notPredicted = 0;

  constructor(
    private readonly cluster: DryRunCluster,
    private readonly workload: WorkloadRecord,
  ) {}

  /**
   * Predicts the decisions of the placer. Replaces {@link unplaced} by the replicas that no node
   * fits.
   * @returns The placed replicas, also those whose node was not predicted.
   */
  placeReplicas(
    replicas: readonly ReplicaRecord[],
    observed: RolloutObserved,
  ): readonly ReplicaRecord[] {
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
      for (const { replica, outcome } of this.decide(version, request, group, observed).decided) {
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

  private createRequest(version: number): PlacementRequest {
    const { uid, spec } = this.workload;
    return toPlacementRequest(
      this.workload,
      this.cluster.view.version(uid, version)?.template ?? spec ?? create(WorkloadSpecSchema),
    );
  }

  private decide(
    version: number,
    request: PlacementRequest,
    group: readonly ReplicaRecord[],
    { strategy, want }: RolloutObserved,
  ): PlacementDecision {
    const { schedulerModel } = this.cluster;
    const replicas = group.map((value) => ({ value, revision: 0n }));
    if (group.some(({ onlyNodeId }) => onlyNodeId !== ''))
      return decideBound(schedulerModel, request, replicas);
    const isNewSet = strategy?.kind === 'blueGreen' && version !== strategy.activeVersion;
    return isNewSet
      ? decideSet(schedulerModel, request, replicas, {
          size: want,
          missing: group.length,
          complete: true,
        })
      : decideAny(schedulerModel, request, replicas, group.length);
  }
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
