import { create } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { definedFields } from '@cloudless/base';
import {
  ReplicaStatus_Phase as Phase,
  RolloutFailureSchema,
  type RolloutFailure,
} from '@cloudless/api';
import type { ReplicaRecord, RolloutRecord } from '@cloudless/api/store';
import { toCanonicalVersion, type ClusterView } from '@cloudless/cluster-state';

export interface FailureSources {
  readonly view: Pick<ClusterView, 'version'>;
  readonly rollout: RolloutRecord | undefined;
}

/**
 * Returns the number of failures of a replica that the current rollout created: its restarts and
 * failed starts, plus one when the replica itself has failed. The loss of its node does not count.
 * Returns 0 for every other replica.
 */
export function countFailures(sources: FailureSources, replica: ReplicaRecord): number {
  // `restarts` contains the failed starts, also those of an agent that does not report them apart.
  const failures = replica.restarts + (replica.phase === Phase.FAILED && !replica.lost ? 1 : 0);
  return failures > 0 && isCreatedByRollout(sources, replica) ? failures : 0;
}

function isCreatedByRollout(
  { view, rollout }: FailureSources,
  { uid, sequence, version }: ReplicaRecord,
): boolean {
  if (rollout === undefined || sequence < rollout.firstSequence) return false;
  return toCanonicalVersion(view, uid, version) === toCanonicalVersion(view, uid, rollout.version);
}

/**
 * Creates the failure of a rollout. Replica, node, exit code and log lines are those of the replica
 * that {@link findWorstReplica} returns.
 * @param cause - Why the rollout failed, the failed version, and the time of the failure in
 *   milliseconds since the epoch.
 */
export function toRolloutFailure(
  sources: FailureSources,
  replicas: readonly ReplicaRecord[],
  cause: { readonly reason: string; readonly version: number; readonly nowMs: number },
): RolloutFailure {
  const worst = findWorstReplica(sources, replicas);
  const replicaReason = worst === undefined ? '' : worst.lastEndReason || worst.reason;
  const { reason, version, nowMs } = cause;
  return create(RolloutFailureSchema, {
    reason:
      worst === undefined || reason.includes(replicaReason)
        ? reason
        : `${reason}; replica ${worst.id}: ${replicaReason}`,
    replicaId: worst?.id ?? '',
    nodeId: worst?.nodeId ?? '',
    ...definedFields({ exitCode: worst?.lastExitCode }),
    lastLines: worst?.lastLines ?? [],
    version,
    at: timestampFromMs(nowMs),
  });
}

/**
 * Returns the replica of the rollout with the most failures; when no replica has failed, a replica
 * that is not ready. Of several such replicas, returns the newest.
 */
function findWorstReplica(
  sources: FailureSources,
  replicas: readonly ReplicaRecord[],
): ReplicaRecord | undefined {
  const countFailuresOf = (replica: ReplicaRecord): number => countFailures(sources, replica);
  return replicas
    .filter(
      (replica) =>
        isCreatedByRollout(sources, replica) &&
        !replica.lost &&
        (!replica.ready || countFailuresOf(replica) > 0),
    )
    .sort((a, b) => countFailuresOf(b) - countFailuresOf(a) || Number(b.sequence - a.sequence))[0];
}
