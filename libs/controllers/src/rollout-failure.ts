import { create } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { ReplicaStatus_Phase as Phase, RolloutFailureSchema, type RolloutFailure } from '@cloudless/api';
import type { ControlRecord, ReplicaRecord } from '@cloudless/api/store';

/** How often a replica that the present rollout has made has failed: each restart, and its end. What goes with its node does not count. */
export function failuresOf({ rollout }: Pick<ControlRecord, 'rollout'>, replica: ReplicaRecord): number {
  if (rollout === undefined || replica.sequence < rollout.firstSequence) return 0;
  return replica.restarts + (replica.phase === Phase.FAILED && !replica.lost ? 1 : 0);
}

/** What made a rollout fail, with the replica that shows it best. */
export function toRolloutFailure(
  control: Pick<ControlRecord, 'rollout'>,
  replicas: readonly ReplicaRecord[],
  about: { readonly reason: string; readonly version: number; readonly nowMs: number },
): RolloutFailure {
  const worst = worstOf(control, replicas);
  const why = worst === undefined ? '' : worst.lastEndReason || worst.reason;
  const { version, nowMs } = about;
  return create(RolloutFailureSchema, {
    reason: worst === undefined || why === '' ? about.reason : `${about.reason}; replica ${worst.id}: ${why}`,
    replicaId: worst?.id ?? '',
    nodeId: worst?.nodeId ?? '',
    ...(worst?.lastExitCode === undefined ? {} : { exitCode: worst.lastExitCode }),
    lastLines: worst?.lastLines ?? [],
    version,
    at: timestampFromMs(nowMs),
  });
}

/** Of those the rollout has made: the one that failed most, else one that does not become ready; the newest of equals. */
function worstOf(control: Pick<ControlRecord, 'rollout'>, replicas: readonly ReplicaRecord[]): ReplicaRecord | undefined {
  const first = control.rollout?.firstSequence ?? 0n;
  const made = replicas.filter((replica) => replica.sequence >= first && !replica.lost && !replica.ready);
  const badness = (replica: ReplicaRecord): number => failuresOf(control, replica);
  return [...made].sort((a, b) => badness(b) - badness(a) || Number(b.sequence - a.sequence))[0];
}
