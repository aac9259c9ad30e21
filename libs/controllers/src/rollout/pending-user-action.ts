import { RolloutStatus_Phase as Phase, type RolloutStatus, isRolledOut } from '@cloudless/api';
import type { ControlRecord, RolloutRecord } from '@cloudless/api/store';

/** Tells whether a rollout is neither completed nor rolled back. */
export const isInProgress = ({ rolloutPhase }: ControlRecord): boolean =>
  !isRolledOut(rolloutPhase);

/**
 * The changes that a pause, a resume or a promotion makes to the status of a rollout before any
 * pass has acted on it. The status shows them at once, so that a user who reads it after the
 * request sees the effect.
 */
export function getPendingUserAction(
  control: ControlRecord,
  { version, retry, promoted, waitsForPromotion }: RolloutRecord,
): Partial<Pick<RolloutStatus, 'phase' | 'reason' | 'waitsForPromotion'>> {
  const { rolloutPhase: phase, rolloutReason, pausedVersion } = control;
  const continues = { phase: Phase.IN_PROGRESS, reason: '', waitsForPromotion: false };
  if (phase === Phase.FAILED) return retry ? continues : {};
  if (pausedVersion === version) return isInProgress(control) ? { phase: Phase.PAUSED } : {};
  // A pause by a user has no reason; every other pause has one.
  const resumed = phase === Phase.PAUSED && rolloutReason === '';
  return resumed || (waitsForPromotion && promoted) ? continues : {};
}
