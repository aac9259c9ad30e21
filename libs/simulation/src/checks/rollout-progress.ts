import { RolloutStatus_Phase as RolloutPhase } from '@cloudless/api';
import type { ControlRecord, WorkloadRecord } from '@cloudless/api/store';
import type { CheckedView } from '../parts/durable-records.js';
import { isSettled, msOf, settingsOf } from './rollout-facts.js';

/**
 * Invariant 11: returns the rollouts that have not ended: neither completed, failed, rolled back,
 * nor paused with a reason.
 */
export function findRolloutsInProgress(
  view: Pick<CheckedView, 'workloads' | 'control'>,
): readonly string[] {
  return [...view.workloads()].flatMap(
    ({ value: { uid, name, version, generation, deletionRequestedAt } }) => {
      if (deletionRequestedAt !== undefined) return [];
      const control = view.control(uid)?.value;
      if (control?.rollout === undefined)
        return [`${name}: no rollout of version ${version} has begun`];
      const { rolloutPhase: phase, rolloutReason: reason, rollout, observedGeneration } = control;
      if (rollout.version !== version)
        return [`${name}: the rollout of version ${version} has not begun`];
      if (observedGeneration !== generation)
        return [`${name}: generation ${generation} was not observed`];
      const isHeld =
        (phase === RolloutPhase.PAUSED || phase === RolloutPhase.FAILED) && reason !== '';
      return isSettled(phase) || isHeld
        ? []
        : [`${name}: version ${version} is ${RolloutPhase[phase]}: ${reason}`];
    },
  );
}

/** Returns the rollouts that are neither completed nor rolled back, for whatever reason. */
export function findUnfinishedRollouts(
  view: Pick<CheckedView, 'workloads' | 'control'>,
): readonly string[] {
  return [...view.workloads()].flatMap(({ value: { uid, name, version } }) => {
    const control = view.control(uid)?.value;
    const isDone =
      control !== undefined &&
      control.rollout?.version === version &&
      isSettled(control.rolloutPhase);
    return isDone
      ? []
      : [
          `${name}: the rollout of version ${version} is not completed: ${control?.rolloutReason ?? ''}`,
        ];
  });
}

/** A deadline that nothing in a simulated world exceeds, milliseconds. */
export const AMPLE_DEADLINE_MS = 30_000;

/**
 * Returns the user action without which a rollout does not proceed, according to its status.
 * @returns `raiseLimits` for a pause because of failed replicas, `giveTime` for a progress deadline
 *   below {@link AMPLE_DEADLINE_MS}, undefined when no action is needed.
 */
export function requiredUserAction(
  { rolloutPhase, rolloutReason, rollout, pausedVersion }: ControlRecord,
  workload: WorkloadRecord,
): 'resume' | 'promote' | 'raiseLimits' | 'giveTime' | undefined {
  const isTooSlow = rolloutPhase === RolloutPhase.FAILED && rolloutReason.startsWith('no progress');
  if (isTooSlow && msOf(settingsOf(workload)?.progressDeadline) < AMPLE_DEADLINE_MS)
    return 'giveTime';
  if (pausedVersion === workload.version || rolloutPhase === RolloutPhase.FAILED) return 'resume';
  if (rolloutPhase !== RolloutPhase.PAUSED) return undefined;
  return rollout?.waitsForPromotion === true ? 'promote' : 'raiseLimits';
}
