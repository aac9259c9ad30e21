import { ReplicaStatus_Phase as Phase, RestartPolicy_Policy as RestartMode } from '@cloudless/api';
import type { ReplicaRecord, WorkloadRecord } from '@cloudless/api/store';
import { toCanonicalVersion, type ClusterView } from '@cloudless/cluster-state';

/**
 * Returns true for a replica with the wanted template that has finished for good: SUCCEEDED, or
 * FAILED under restart policy NEVER. Such a replica counts as one of the wanted replicas and is not
 * replaced. A lost replica has not finished.
 */
export function isFinished(
  view: Pick<ClusterView, 'version'>,
  workload: WorkloadRecord,
  replica: ReplicaRecord,
): boolean {
  return isFinishedOfVersion(view, workload, workload.version, replica);
}

/**
 * Returns true for a replica of the active version that has finished for good while another version
 * is rolled out. Where the rollout keeps replicas of the active version, the replica counts as one
 * of them and is not replaced.
 * @param activeVersion - 0 when no version is active.
 */
export function isFinishedOfActiveVersion(
  view: Pick<ClusterView, 'version'>,
  workload: WorkloadRecord,
  activeVersion: number,
  replica: ReplicaRecord,
): boolean {
  return (
    activeVersion !== 0 &&
    replica.desiredRunning &&
    !isFinished(view, workload, replica) &&
    isFinishedOfVersion(view, workload, activeVersion, replica)
  );
}

function isFinishedOfVersion(
  view: Pick<ClusterView, 'version'>,
  { uid, spec }: WorkloadRecord,
  version: number,
  replica: ReplicaRecord,
): boolean {
  const { phase } = replica;
  if (phase !== Phase.SUCCEEDED && phase !== Phase.FAILED) return false;
  const neverRestarts = spec?.restart?.policy === RestartMode.NEVER;
  return (
    (phase === Phase.SUCCEEDED || neverRestarts) &&
    !replica.lost &&
    toCanonicalVersion(view, uid, replica.version) === toCanonicalVersion(view, uid, version)
  );
}

/**
 * Returns the number of replicas that have to run: the wanted count minus the finished replicas.
 * @param wanted - The wanted count of the spec.
 */
export function countStillWanted(
  view: Pick<ClusterView, 'version'>,
  workload: WorkloadRecord,
  replicas: readonly ReplicaRecord[],
  wanted: number,
): number {
  let finished = 0;
  for (const replica of replicas)
    if (replica.desiredRunning && isFinished(view, workload, replica)) finished += 1;
  return Math.max(0, wanted - finished);
}
