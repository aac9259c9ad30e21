import {
  ReplicaStatus_Phase,
  Rollout_Strategy,
  RolloutStatus_Phase,
  WorkloadStatus_Phase,
  isRolledOut,
} from '@cloudless/api';
import type { RolloutStatus, Workload } from '@cloudless/api';
import { ExitCode } from '../call/failure.js';
import { formatDuration } from '../output/human.js';
import { describeProgress } from './rollout-counts.js';

/** Progress of a workload towards a requested generation. */
export type WorkloadProgress =
  | { readonly kind: 'done'; readonly text: string } // complete, or waiting for a promotion
  | {
      readonly kind: 'waiting';
      readonly text: string;
      /** True when some replicas have no node; selects the exit code of a timeout. */
      readonly unplaced: boolean;
    }
  | { readonly kind: 'failed'; readonly text: string; readonly exitCode: number };

/**
 * Decides whether a workload has reached a generation. Done means: the generation is observed, the
 * rollout is complete, no replica of an older version is left, and every desired replica is ready
 * or has succeeded; or the rollout waits for a promotion; or it has switched all traffic and only
 * keeps the earlier version for `pause_duration`.
 * @param generation - The generation to reach. A newer generation is accepted too.
 * @param version - Version that the generation rolls out. The rollback of an older version is not a
 *   failure of this generation. Default: 0, any rollback is a failure.
 */
export function judgeWorkload(
  workload: Workload,
  generation: bigint,
  version = 0,
): WorkloadProgress {
  const { status } = workload;
  if (status === undefined || status.observedGeneration < generation) {
    return { kind: 'waiting', text: 'the change has not been observed yet', unplaced: false };
  }
  const reason = status.reason || status.rollout?.reason || '';
  const reasonSuffix = reason === '' ? '' : `: ${reason}`;
  if (status.phase === WorkloadStatus_Phase.TERMINATING) {
    return { kind: 'failed', text: 'it is being deleted', exitCode: ExitCode.conflict };
  }
  const rolloutResult = judgeRollout(status.rollout, version, reasonSuffix);
  if (rolloutResult !== undefined) return rolloutResult;
  const rolloutPhase = status.rollout?.phase ?? RolloutStatus_Phase.COMPLETED;
  if (status.phase === WorkloadStatus_Phase.FAILED)
    return { kind: 'failed', text: `it failed${reasonSuffix}`, exitCode: ExitCode.rolloutFailed };
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
  const isSettled =
    isRolledOut(rolloutPhase) &&
    total === updated &&
    total <= desired &&
    ready === total &&
    total + succeededReplicas >= desired;
  if (isSettled) return { kind: 'done', text: `${ready} of ${desired} ready${finished}` };
  const kept = describeKeptVersion(workload);
  if (kept !== undefined) return { kind: 'done', text: `${ready} of ${desired} ready${kept}` };
  return {
    kind: 'waiting',
    text: describeProgress(workload) + finished,
    unplaced: hasUnplaced(workload),
  };
}

/**
 * Describes that a BLUE_GREEN rollout only keeps the old version for `pause_duration`: all traffic
 * goes to the new version, and all its replicas are ready. Undefined in every other state.
 */
function describeKeptVersion({ spec, status }: Workload): string | undefined {
  const { pauseDuration } = spec?.rollout ?? {};
  const { strategy, phase } = status?.rollout ?? {};
  const isBlueGreen = strategy === Rollout_Strategy.BLUE_GREEN;
  if (status === undefined || !isBlueGreen || pauseDuration === undefined) return undefined;
  if (phase !== RolloutStatus_Phase.IN_PROGRESS) return undefined;
  const { desiredReplicas, readyReplicas, updatedReplicas, version, activeVersion } = status;
  const isSwitched = activeVersion === version && updatedReplicas === desiredReplicas;
  // Under BLUE_GREEN, only replicas of the active version count as ready.
  if (!isSwitched || readyReplicas < desiredReplicas) return undefined;
  return `; the earlier version is kept for ${formatDuration(pauseDuration)} (--pause-duration)`;
}

/** Returns true when a replica has no node and the status contains the reason. */
export function hasUnplaced({ status }: Workload): boolean {
  if (status === undefined) return false;
  const isScheduling =
    status.phase === WorkloadStatus_Phase.PENDING ||
    status.phase === WorkloadStatus_Phase.SCHEDULING;
  return (
    (isScheduling && status.reason !== '') ||
    status.replicas.some(
      ({ phase, reason, leaving }) =>
        phase === ReplicaStatus_Phase.PENDING && reason !== '' && !leaving,
    )
  );
}

/**
 * Returns the result of a rollout that failed, was rolled back, is paused or waits for a promotion.
 * Returns undefined while the wait goes on.
 * @param version - A failure of an older version is ignored.
 */
function judgeRollout(
  rollout: RolloutStatus | undefined,
  version: number,
  reasonSuffix: string,
): WorkloadProgress | undefined {
  if (rollout === undefined) return undefined;
  const { phase, failure } = rollout;
  const createFailure = (text: string): WorkloadProgress => ({
    kind: 'failed',
    text,
    exitCode: ExitCode.rolloutFailed,
  });
  const cause =
    failure === undefined || failure.reason === '' ? reasonSuffix : `: ${failure.reason}`;
  const concernsVersion = failure === undefined || failure.version >= version;
  if (phase === RolloutStatus_Phase.FAILED) return createFailure(`the rollout failed${cause}`);
  if (phase === RolloutStatus_Phase.ROLLED_BACK && concernsVersion)
    return createFailure(`the rollout was rolled back${cause}`);
  if (concernsVersion && isRollingBack(rollout))
    return createFailure(`the rollout failed and is being rolled back${cause}`);
  if (phase !== RolloutStatus_Phase.PAUSED) return undefined;
  if (rollout.waitsForPromotion && !rollout.pausedByUser)
    return { kind: 'done', text: `waits for a promotion${reasonSuffix}` };
  return createFailure(`the rollout is paused${reasonSuffix}`);
}

/** Returns true while a rollout restores the version before a failed version. */
function isRollingBack({ phase, version, failure }: RolloutStatus): boolean {
  if (isRolledOut(phase)) return false;
  return failure !== undefined && failure.version !== 0 && failure.version < version;
}
