import {
  ReplicaStatus_Phase,
  RolloutStatus_Phase,
  WorkloadStatus_Phase,
  isRolledOut,
} from '@cloudless/api';
import type { RolloutStatus, Workload } from '@cloudless/api';
import { ExitCode } from '../failure.js';
import { formatWord } from '../output/human.js';

/** How far a workload is from what was asked for. */
export type WorkloadProgress =
  | { readonly kind: 'done'; readonly text: string } // or as far as it goes before somebody promotes it
  | {
      readonly kind: 'waiting';
      readonly text: string;
      /** Some replicas have no node: the reason to give when the time is over. */
      readonly unplaced: boolean;
    }
  | { readonly kind: 'failed'; readonly text: string; readonly exitCode: number };

/**
 * Judges whether a workload has become what its generation `generation`, or a newer one, says. Done
 * is: observed, the rollout complete, nothing of an older version left, and every wanted replica
 * ready or run to completion; or: waits for a promotion.
 * @param version - What that generation rolls out: a rollback of an older version is not its
 *   failure. Without it any is.
 */
export function judgeWorkload(
  workload: Workload,
  generation: bigint,
  version = 0,
): WorkloadProgress {
  const { status } = workload;
  if (status === undefined || status.observedGeneration < generation) {
    return { kind: 'waiting', text: 'the change has not been taken up yet', unplaced: false };
  }
  const reason = status.reason || status.rollout?.reason || '';
  const because = reason === '' ? '' : `: ${reason}`;
  if (status.phase === WorkloadStatus_Phase.TERMINATING) {
    return { kind: 'failed', text: 'it is being deleted', exitCode: ExitCode.conflict };
  }
  const end = rolloutEnd(status.rollout, version, because);
  if (end !== undefined) return end;
  const rollout = status.rollout?.phase ?? RolloutStatus_Phase.COMPLETED;
  if (status.phase === WorkloadStatus_Phase.FAILED)
    return { kind: 'failed', text: `it failed${because}`, exitCode: ExitCode.rolloutFailed };
  const {
    desiredReplicas: desired,
    readyReplicas: ready,
    updatedReplicas: updated,
    totalReplicas: total,
    succeededReplicas,
  } = status;
  if (status.phase === WorkloadStatus_Phase.SUCCEEDED)
    return { kind: 'done', text: `${succeededReplicas} of ${desired} succeeded` };
  const finished = succeededReplicas > 0 ? `, ${succeededReplicas} succeeded` : '';
  const settled =
    isRolledOut(rollout) &&
    total === updated &&
    total <= desired &&
    ready === total &&
    total + succeededReplicas >= desired;
  if (settled) return { kind: 'done', text: `${ready} of ${desired} ready${finished}` };
  const others = total > updated ? `, ${total - updated} old` : '';
  return {
    kind: 'waiting',
    text: `${ready} of ${desired} ready, ${updated} updated${others}${finished}${COUNTS_ONLY.test(reason) ? '' : because}`,
    unplaced: hasUnplaced(workload),
  };
}

/** A reason that tells nothing but how many are ready, which stands before it. */
const COUNTS_ONLY = /^\d+ of \d+ replicas are ready, \d+ not yet$/;

/** One line for each replica that is not ready, for people who watch. */
export function describeReplicas(workload: Workload, most: number): readonly string[] {
  const replicas = (workload.status?.replicas ?? []).filter(
    ({ phase }) => phase !== ReplicaStatus_Phase.STOPPED && phase !== ReplicaStatus_Phase.SUCCEEDED,
  );
  const lines = replicas
    .slice(0, most)
    .map(({ id, phase, ready, nodeId, version, reason }) =>
      [
        id,
        formatWord(ReplicaStatus_Phase[phase]),
        ready ? 'ready' : 'not ready',
        `v${version}`,
        nodeId,
        reason,
      ]
        .filter((part) => part !== '')
        .join('  '),
    );
  return replicas.length > most ? [...lines, `and ${replicas.length - most} more`] : lines;
}

function hasUnplaced({ status }: Workload): boolean {
  if (status === undefined) return false;
  const scheduling =
    status.phase === WorkloadStatus_Phase.PENDING ||
    status.phase === WorkloadStatus_Phase.SCHEDULING;
  return (
    (scheduling && status.reason !== '') ||
    status.replicas.some(
      ({ phase, reason, leaving }) =>
        phase === ReplicaStatus_Phase.PENDING && reason !== '' && !leaving,
    )
  );
}

/** How a rollout has ended otherwise than well, or waits for somebody: no waiting changes that. */
function rolloutEnd(
  rollout: RolloutStatus | undefined,
  version: number,
  because: string,
): WorkloadProgress | undefined {
  if (rollout === undefined) return undefined;
  const { phase, failure } = rollout;
  const failed = (text: string): WorkloadProgress => ({
    kind: 'failed',
    text,
    exitCode: ExitCode.rolloutFailed,
  });
  const cause = failure === undefined || failure.reason === '' ? because : `: ${failure.reason}`;
  const isOurs = failure === undefined || failure.version >= version;
  if (phase === RolloutStatus_Phase.FAILED) return failed(`the rollout failed${cause}`);
  if (phase === RolloutStatus_Phase.ROLLED_BACK && isOurs)
    return failed(`the rollout was rolled back${cause}`);
  if (isOurs && isGoingBack(rollout))
    return failed(`the rollout failed and is being rolled back${cause}`);
  if (phase !== RolloutStatus_Phase.PAUSED) return undefined;
  if (rollout.waitsForPromotion && !rollout.pausedByUser)
    return { kind: 'done', text: `waits for a promotion${because}` };
  return failed(`the rollout is paused${because}`);
}

/** Whether it brings back what was there before a version that failed. */
function isGoingBack({ phase, version, failure }: RolloutStatus): boolean {
  const settled = isRolledOut(phase);
  return !settled && failure !== undefined && failure.version !== 0 && failure.version < version;
}
