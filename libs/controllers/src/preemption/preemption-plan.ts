import { create } from '@bufbuild/protobuf';
import { WorkloadSpecSchema } from '@cloudless/api';
import type { ReplicaRecord, WorkloadRecord } from '@cloudless/api/store';
import { toNodeId } from '@cloudless/base';
import type { ClusterView, Stored } from '@cloudless/cluster-state';
import type { Cluster, PreemptionDecision, PreemptOptions } from '@cloudless/scheduler';
import { toPlacementRequest } from '../placement/scheduler-input.js';
import { findNewSet } from '../placement/placement-decision.js';
import { DisruptionBudgets, type DisruptionBudgetSources } from './disruption-budget.js';
import { isNominated, withoutNominations } from './nominations.js';

/** Input of a decision about preemption. */
export interface PreemptionSources extends Omit<DisruptionBudgetSources, 'view' | 'cluster'> {
  readonly view: ClusterView;
  readonly cluster: Pick<Cluster, 'preempt' | 'reserve' | 'release' | 'eligibleNodes'>;
}

/** The decision for one waiting replica, with the budgets that it rests on. */
export interface ReplicaPreemption {
  readonly decision: PreemptionDecision;
  readonly budgets: DisruptionBudgets;
}

/**
 * Decides for a waiting replica which replicas have to leave, as if the replica held nothing by a
 * nomination.
 */
export function decidePreemption(
  sources: PreemptionSources,
  workload: WorkloadRecord,
  replica: ReplicaRecord,
): ReplicaPreemption {
  const { view, cluster } = sources;
  const template =
    view.version(replica.uid, replica.version)?.template ??
    workload.spec ??
    create(WorkloadSpecSchema);
  const request = toPlacementRequest(workload, template);
  const nominated = isNominated(replica) ? replica.nominatedNodeId : '';
  const only = replica.onlyNodeId === '' ? [] : [toNodeId(replica.onlyNodeId)];
  const { options, budgets } = createPreemptOptions(sources, (id) => view.replica(id)?.value);
  const decision = withoutNominations(cluster, request, [replica], () =>
    cluster.preempt(request, {
      ...options,
      ...(only.length === 0 ? {} : { nodeIds: only }),
      ...(nominated === '' ? {} : { preferredNodeId: toNodeId(nominated) }),
    }),
  );
  return { decision, budgets };
}

/**
 * Creates the options that keep `min_available` of every workload. The nomination of another
 * replica may always be taken: no running replica stops.
 * @param findReplica - Finds a replica by its id and the id of its workload.
 */
export function createPreemptOptions(
  sources: DisruptionBudgetSources,
  findReplica: (id: string, uid: string) => ReplicaRecord | undefined,
): {
  readonly options: Required<Pick<PreemptOptions, 'evictabilityOf' | 'permitsOf'>>;
  readonly budgets: DisruptionBudgets;
} {
  const budgets = new DisruptionBudgets(sources);
  return {
    budgets,
    options: {
      evictabilityOf: ({ replicaId, workloadId }) => {
        const replica = findReplica(replicaId, workloadId);
        if (replica === undefined) return 'never';
        if (isNominated(replica)) return 'free';
        // A replica whose placement is not committed yet has no node in its record.
        return replica.nodeId === '' ? 'never' : budgets.of(workloadId).evictabilityOf(replicaId);
      },
      permitsOf: (workloadId) => budgets.permitsOf(workloadId),
    },
  };
}

/**
 * Returns true when the replicas of a workload and version may preempt others: not the new set of a
 * blue/green rollout, which is placed as a whole or not at all.
 */
export function mayPreempt(
  view: ClusterView,
  workload: Stored<WorkloadRecord>,
  version: number,
): boolean {
  return (
    workload.value.deletionRequestedAt === undefined &&
    findNewSet(view, workload.value, version) === undefined
  );
}
