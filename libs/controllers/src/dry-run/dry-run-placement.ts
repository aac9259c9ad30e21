import { create } from '@bufbuild/protobuf';
import { WorkloadSpecSchema } from '@cloudless/api';
import type { ReplicaRecord, WorkloadRecord } from '@cloudless/api/store';
import { toCanonicalVersion } from '@cloudless/cluster-state';
import type { RolloutObserved } from '@cloudless/rollout';
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
      if (!this.cluster.consumePlacementBudget()) {
        this.notPredicted += group.length;
        placed.push(
          ...group.map((replica) => this.cluster.placeReplica(this.workload, replica, '')),
        );
        continue;
      }
      for (const { replica, outcome } of this.decide(version, group, observed).decided) {
        if ('reason' in outcome) {
          unplaced.push(this.cluster.refuseReplica(replica.value, outcome.reason));
          this.reason = shortenReason(outcome.reason);
        } else {
          this.placements.push({ nodeId: outcome.nodeId, score: outcome.score });
          placed.push(this.cluster.placeReplica(this.workload, replica.value, outcome.nodeId));
        }
      }
    }
    this.unplaced = unplaced;
    return placed;
  }

  private decide(
    version: number,
    group: readonly ReplicaRecord[],
    { strategy, want }: RolloutObserved,
  ): PlacementDecision {
    const { schedulerModel, view } = this.cluster;
    const { uid, spec } = this.workload;
    const request = toPlacementRequest(
      this.workload,
      view.version(uid, version)?.template ?? spec ?? create(WorkloadSpecSchema),
    );
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
