import { RolloutStatus_Phase as Phase, type RolloutStatus, isRolledOut } from '@cloudless/api';
import type { ControlRecord, RolloutRecord } from '@cloudless/api/store';

/**
 * Returns true unless the rollout is completed or rolled back. A failed rollout counts as
 * unfinished, because a user can retry it.
 */
export const isUnfinished = ({ rolloutPhase }: ControlRecord): boolean =>
  !isRolledOut(rolloutPhase);

/**
 * Returns the changes of the rollout status that follow from a pause, a resume or a promotion which
 * no reconciliation pass has applied yet. A user who reads the status directly after the request
 * thus sees the effect of the request.
 */
export function toPendingStatusChange(
  control: ControlRecord,
  { version, retry, promoted, waitsForPromotion }: RolloutRecord,
): Partial<Pick<RolloutStatus, 'phase' | 'reason' | 'waitsForPromotion'>> {
  const { rolloutPhase: phase, rolloutReason, pausedVersion } = control;
  const continues = { phase: Phase.IN_PROGRESS, reason: '', waitsForPromotion: false };
  if (phase === Phase.FAILED) return retry ? continues : {};
  if (pausedVersion === version) return isUnfinished(control) ? { phase: Phase.PAUSED } : {};
  // A pause by a user has no reason; every other pause has a reason.
  const resumed = phase === Phase.PAUSED && rolloutReason === '';
  return resumed || (waitsForPromotion && promoted) ? continues : {};
}
