import { RolloutStatus_Phase as Phase, type RolloutStatus, isRolledOut } from '@cloudless/api';
import type { ControlRecord, RolloutRecord } from '@cloudless/api/store';

/** Whether a rollout has not come to its end. */
export const isUnderWay = ({ rolloutPhase }: ControlRecord): boolean => !isRolledOut(rolloutPhase);

/**
 * What a pause, a resume or a promotion that no pass has acted upon yet makes of the status of a
 * rollout. It shows at once, so that whoever has asked and looks does not see what was before.
 */
export function askedFor(
  control: ControlRecord,
  { version, retry, promoted, waitsForPromotion }: RolloutRecord,
): Partial<Pick<RolloutStatus, 'phase' | 'reason' | 'waitsForPromotion'>> {
  const { rolloutPhase: phase, rolloutReason, pausedVersion } = control;
  const goesOn = { phase: Phase.IN_PROGRESS, reason: '', waitsForPromotion: false };
  if (phase === Phase.FAILED) return retry ? goesOn : {};
  if (pausedVersion === version) return isUnderWay(control) ? { phase: Phase.PAUSED } : {};
  // A resume takes the reason away; every other pause than a user's has one.
  const resumed = phase === Phase.PAUSED && rolloutReason === '';
  return resumed || (waitsForPromotion && promoted) ? goesOn : {};
}
