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
 * The number of failures of a replica that the current rollout created: its restarts, and its end
 * if it failed. Losses with a node do not count, nor do failures of replicas of the previous
 * version.
 */
export function countFailures(sources: FailureSources, replica: ReplicaRecord): number {
  if (!isCreatedByRollout(sources, replica)) return 0;
  return replica.restarts + (replica.phase === Phase.FAILED && !replica.lost ? 1 : 0);
}

function isCreatedByRollout(
  { view, rollout }: FailureSources,
  { uid, sequence, version }: ReplicaRecord,
): boolean {
  if (rollout === undefined || sequence < rollout.firstSequence) return false;
  return toCanonicalVersion(view, uid, version) === toCanonicalVersion(view, uid, rollout.version);
}

/** The failure of a rollout, with the replica that shows it best. */
export function toRolloutFailure(
  sources: FailureSources,
  replicas: readonly ReplicaRecord[],
  about: { readonly reason: string; readonly version: number; readonly nowMs: number },
): RolloutFailure {
  const worst = findWorstReplica(sources, replicas);
  const replicaReason = worst === undefined ? '' : worst.lastEndReason || worst.reason;
  const { version, nowMs } = about;
  return create(RolloutFailureSchema, {
    reason:
      worst === undefined || about.reason.includes(replicaReason)
        ? about.reason
        : `${about.reason}; replica ${worst.id}: ${replicaReason}`,
    replicaId: worst?.id ?? '',
    nodeId: worst?.nodeId ?? '',
    ...definedFields({ exitCode: worst?.lastExitCode }),
    lastLines: worst?.lastLines ?? [],
    version,
    at: timestampFromMs(nowMs),
  });
}

/**
 * The replica of the rollout with the most failures, else a replica that does not become ready;
 * among equals the newest.
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
