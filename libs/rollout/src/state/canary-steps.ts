import { isStaying } from '../steps/replica-tally.js';
import {
  isFirstRollout,
  isSettled,
  countAvailable,
  formatDuration,
  omitTimes,
} from './rollout-state.js';
import { formatGate, isGateHeld, observeStepGate, explainGate } from './step-gate.js';
import type { RolloutEvent, RolloutSituation, CanaryStep, RolloutState } from './rollout-state.js';

/**
 * Passes the canary steps whose wait has ended, and begins the wait of a step that is reached.
 * @param events - Gets an event for each step that is reached.
 * @returns The next state. `updated` is the number of replicas that may run the new version; absent:
 *   all.
 */
export function passCanarySteps(
  state: RolloutState,
  situation: RolloutSituation,
  events: RolloutEvent[],
): { readonly state: RolloutState; readonly updated?: number } {
  const { settings, observed, nowMs, pausedByUser } = situation;
  const { canarySteps } = settings;
  if (!hasCanarySteps(state, situation)) return { state: leaveStep(state, nowMs) };
  let next = state;
  for (let index = next.stepsDone; index < canarySteps.length; index += 1) {
    const step = canarySteps[index];
    if (step === undefined) break;
    const updated = getStepSize(canarySteps, index, observed.want);
    if (countAvailable(situation) < updated || next.phase === 'failed' || pausedByUser) {
      const isNoLongerReached =
        next.stepReachedAtMs !== undefined && countAvailable(situation) < updated;
      return {
        state: isNoLongerReached ? { ...leaveStep(next, nowMs), promoted: false } : next,
        updated,
      };
    }
    if (next.stepReachedAtMs === undefined) {
      next = {
        ...next,
        stepReachedAtMs: nowMs,
        progressAtMs: nowMs,
        waitsForPromotion: step.wait === 'promotion',
      };
      next = observeStepGate(next, step, situation);
      const gateText = step.gate === undefined ? '' : `, with the gate ${formatGate(step.gate)}`;
      const waitText =
        (step.wait === 'promotion'
          ? 'waits for a promotion'
          : `waits ${formatDuration(step.wait.ms)}`) + gateText;
      const text = `step ${index + 1} of ${canarySteps.length}: ${updated} of ${observed.want} replicas run version ${state.version}`;
      events.push({ kind: 'canaryStepReached', message: `${text}; ${waitText}` });
    }
    const isOver =
      step.wait === 'promotion'
        ? next.promoted
        : nowMs - (next.stepReachedAtMs ?? nowMs) >= step.wait.ms;
    // Set at every decision: a failure clears the field, and the spec may have changed the wait.
    const waitsForPromotion = step.wait === 'promotion' && !next.promoted;
    if (!isOver || !isGateHeld(next, step, nowMs))
      return { state: { ...next, waitsForPromotion }, updated };
    next = { ...leaveStep(next, nowMs), stepsDone: index + 1, promoted: false };
  }
  return { state: leaveStep(next, nowMs) };
}

/** Returns true when the rollout has canary steps that are not completed. */
export const hasOpenCanaryStep = (state: RolloutState, situation: RolloutSituation): boolean =>
  hasCanarySteps(state, situation) && state.stepsDone < situation.settings.canarySteps.length;

/**
 * Returns true when canary steps apply: in a rolling update that is neither a first deployment nor
 * a return to the previous template, which has been tried already.
 */
function hasCanarySteps(state: RolloutState, { observed, toCanonical }: RolloutSituation): boolean {
  if (
    isSettled(state) ||
    isFirstRollout(state) ||
    state.strategy !== 'rollingUpdate' ||
    observed.want === 0
  )
    return false;
  return state.rollsBackFrom === 0 && toCanonical(state.fromVersion) !== toCanonical(state.version);
}

/**
 * Applies the newest evaluation of the gate of the current step. Without a reached step, in a pause
 * and after a failure no gate is evaluated: the next evaluation begins anew.
 */
export function observeGate(state: RolloutState, situation: RolloutSituation): RolloutState {
  const { settings, observed, pausedByUser } = situation;
  const step = settings.canarySteps[state.stepsDone];
  const isEvaluated =
    step?.gate !== undefined &&
    state.stepReachedAtMs !== undefined &&
    state.phase !== 'failed' &&
    !pausedByUser &&
    hasCanarySteps(state, situation) &&
    countAvailable(situation) >= getStepSize(settings.canarySteps, state.stepsDone, observed.want);
  return isEvaluated ? observeStepGate(state, step, situation) : omitTimes(state, 'gate');
}

/** Leaves the current canary step, also when the step was removed from the spec during its wait. */
function leaveStep(state: RolloutState, nowMs: number): RolloutState {
  if (state.stepReachedAtMs === undefined) return state;
  return {
    ...omitTimes(state, 'stepReachedAtMs', 'gate'),
    waitsForPromotion: false,
    progressAtMs: nowMs,
  };
}

/**
 * Returns the number of updated replicas at a canary step: at least one, and never fewer than at an
 * earlier step, also when one step is given in replicas and another in percent.
 * @param want - The wanted number of replicas, which is the most that is returned.
 */
export function getStepSize(
  canarySteps: readonly CanaryStep[],
  index: number,
  want: number,
): number {
  const sizes = canarySteps
    .slice(0, index + 1)
    .map(({ size }) =>
      'replicas' in size ? size.replicas : Math.ceil((size.percent * want) / 100),
    );
  return Math.min(want, Math.max(1, ...sizes));
}

/**
 * Returns the reason of a rollout for users, with the current canary step when there is one.
 * @param text - The wait reason of the planner; empty without a wait.
 */
export function explainStepWait(
  state: RolloutState,
  situation: RolloutSituation,
  text: string,
): string {
  const { settings, observed } = situation;
  const canaryStep = settings.canarySteps[state.stepsDone];
  if (canaryStep === undefined || !hasCanarySteps(state, situation)) return text;
  const step = `step ${state.stepsDone + 1} of ${settings.canarySteps.length}`;
  const size = getStepSize(settings.canarySteps, state.stepsDone, observed.want);
  const surplus = explainLargerUpdate(state, situation, size);
  if (state.stepReachedAtMs === undefined)
    return `${step}${text === '' ? '' : `: ${text}`}${surplus}`;
  const reached = `${step}: ${size} of ${observed.want} replicas run version ${state.version}${surplus}`;
  const gate = explainGate(state, canaryStep, situation);
  if (canaryStep.wait === 'promotion')
    return `${reached}${state.promoted ? '; promoted' : '; waits for a promotion'}${gate}`;
  if (gate !== '') return `${reached}${gate}`;
  return `${reached}; waits ${formatDuration(canaryStep.wait.ms)} since they were ready`;
}

/**
 * Returns a text when more replicas run the new version than the step updates, as after a change of
 * the step to fewer replicas; else an empty text.
 */
function explainLargerUpdate(
  { version }: RolloutState,
  { observed, toCanonical }: RolloutSituation,
  size: number,
): string {
  const wanted = toCanonical(version);
  const updated = observed.replicas.filter(
    (replica) => isStaying(replica) && replica.version === wanted,
  ).length;
  return updated > size
    ? `; ${updated} replicas already run version ${version}, more than the ${size} of this step`
    : '';
}
