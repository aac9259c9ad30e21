import { create } from '@bufbuild/protobuf';
import { WorkloadSpecSchema, withDefaults, type WorkloadSpec } from '@cloudless/api';
import type { ReplicaRecord, WorkloadRecord } from '@cloudless/api/store';
import { toReplicaId } from '@cloudless/base';
import { isLive, type ClusterView } from '@cloudless/cluster-state';
import { resolveLimits, type RolloutLimits, type RolloutObserved, type RolloutReplica } from '@cloudless/rollout';
import type { NodeDirectory } from './node-directory.js';
import type { Readiness } from './readiness.js';
import { msOf } from './scheduler-input.js';

/** What the planner is given, and when its answer may change by time alone. */
export interface RolloutInput {
  readonly observed: RolloutObserved;
  /** Milliseconds until the next ready replica has been ready for min_ready_duration; undefined when none is waited for. */
  readonly nextFreshMs: number | undefined;
}

/** Where the planner's facts come from. */
export interface RolloutSources {
  readonly view: ClusterView;
  readonly nodes: NodeDirectory;
  readonly readiness: Readiness;
}

/** The limits of a workload for a count of wanted replicas. */
export function limitsOf(spec: WorkloadSpec, desired: number): RolloutLimits {
  const { rollout } = spec;
  return resolveLimits({
    desired,
    ...(rollout?.maxSurge === undefined ? {} : { maxSurge: rollout.maxSurge }),
    ...(rollout?.maxUnavailable === undefined ? {} : { maxUnavailable: rollout.maxUnavailable }),
    ...(rollout?.minAvailable === undefined ? {} : { minAvailable: rollout.minAvailable }),
  });
}

/** @param desired - Replicas that are wanted now: 0 while the workload is being deleted. */
export function toRolloutInput(
  sources: RolloutSources,
  workload: WorkloadRecord,
  replicas: readonly ReplicaRecord[],
  desired: number,
): RolloutInput {
  const spec = withDefaults(workload.spec ?? create(WorkloadSpecSchema));
  const minReadyMs = msOf(spec.rollout?.minReadyDuration);
  let nextFreshMs: number | undefined;
  const toRolloutReplica = (replica: ReplicaRecord): RolloutReplica => {
    const readyForMs = sources.readiness.readyForMs(replica);
    if (readyForMs !== undefined && readyForMs < minReadyMs) {
      nextFreshMs = Math.min(nextFreshMs ?? Number.POSITIVE_INFINITY, minReadyMs - readyForMs);
    }
    return {
      id: toReplicaId(replica.id),
      version: replica.version,
      // One that leaves counts against the batch as long as it still serves.
      ready: replica.desiredRunning ? readyForMs !== undefined && readyForMs >= minReadyMs : replica.ready,
      desired: replica.desiredRunning ? 'running' : 'stopped',
      lost: replica.lost,
      draining: sources.view.node(replica.nodeId)?.value.draining ?? false,
      // Ready for a moment only, or on a node that is silent: it serves, so it is not free to go.
      unproven: readyForMs !== undefined || (replica.nodeId !== '' && !sources.nodes.isAlive(replica.nodeId)),
      createdSequence: Number(replica.sequence),
    };
  };
  const observed: RolloutObserved = {
    ...limitsOf(spec, desired),
    version: workload.version,
    replicas: replicas.filter(isLive).map(toRolloutReplica),
  };
  return { observed, nextFreshMs };
}
