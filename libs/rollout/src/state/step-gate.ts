import { formatDuration, omitTimes } from './rollout-state.js';
import type { CanaryStep, RolloutSituation, RolloutState } from './rollout-state.js';

/** Milliseconds between two evaluations of a gate, as often as figures arrive. */
export const GATE_INTERVAL_MS = 5_000;
/**
 * Milliseconds for which a gate may be false before the rollout fails: one window of figures, so that
 * a short disturbance that the window still contains does not fail the rollout.
 */
export const GATE_TOLERANCE_MS = 30_000;
/** Longest text of a gate in a reason, characters. */
const MAX_GATE_TEXT = 200;

/** Formats a gate for people: in quotes, at most 200 characters. */
export function formatGate(gate: string): string {
  const text = gate.replaceAll(/\s+/g, ' ').trim();
  return `"${text.length > MAX_GATE_TEXT ? `${text.slice(0, MAX_GATE_TEXT)}…` : text}"`;
}

/** Applies the newest evaluation of the gate of a reached step. */
export function observeStepGate(
  state: RolloutState,
  step: CanaryStep,
  { gate, changed, nowMs }: RolloutSituation,
): RolloutState {
  if (step.gate === undefined) return omitTimes(state, 'gate');
  const verdict = gate?.expression === step.gate ? gate.verdict : 'noData';
  // Another spec may have another gate.
  if (state.gate?.verdict === verdict && !changed) return state;
  return { ...state, gate: { verdict, sinceMs: nowMs } };
}

/** Returns true when a step has no gate, or its gate has been true for the whole wait. */
export function isGateHeld(state: RolloutState, step: CanaryStep, nowMs: number): boolean {
  if (step.gate === undefined) return true;
  const { gate } = state;
  return gate?.verdict === 'passed' && nowMs - gate.sinceMs >= getWaitMs(step);
}

/** Returns why the gate fails the rollout now; undefined when it does not. */
export function explainGateFailure(
  { gate, stepsDone }: RolloutState,
  { settings, gate: observation, nowMs }: RolloutSituation,
): string | undefined {
  if (gate?.verdict !== 'failed' || nowMs - gate.sinceMs < GATE_TOLERANCE_MS) return undefined;
  const expression = settings.canarySteps[stepsDone]?.gate ?? '';
  const text = observation === undefined ? '' : `: ${observation.text}`;
  return `gate ${formatGate(expression)} of step ${stepsDone + 1} was false for ${formatDuration(nowMs - gate.sinceMs)}${text}`;
}

/**
 * Returns the time at which a rollout fails because the gate of its reached step has not been true
 * for long enough: the progress deadline after the wait of the step. Undefined without a gate, and
 * before a promotion.
 */
export function getGateDeadline(
  state: RolloutState,
  { settings }: RolloutSituation,
): number | undefined {
  const step = settings.canarySteps[state.stepsDone];
  if (state.gate === undefined || step?.gate === undefined) return undefined;
  if (step.wait === 'promotion' && !state.promoted) return undefined;
  return state.progressAtMs + getWaitMs(step) + settings.progressDeadlineMs;
}

/** Returns the time at which a gate completes its step or fails the rollout, if it stays as it is. */
export function findGateTime(
  state: RolloutState,
  situation: RolloutSituation,
  step: CanaryStep,
): number | undefined {
  const { gate } = state;
  const deadlineMs = getGateDeadline(state, situation);
  if (gate === undefined || gate.verdict === 'noData') return deadlineMs;
  const endsMs = gate.sinceMs + (gate.verdict === 'failed' ? GATE_TOLERANCE_MS : getWaitMs(step));
  return Math.min(endsMs, deadlineMs ?? Number.POSITIVE_INFINITY);
}

/** Explains the gate of a reached step, behind other text; empty without a gate. */
export function explainGate(
  { gate }: RolloutState,
  step: CanaryStep,
  { gate: observation }: RolloutSituation,
): string {
  if (step.gate === undefined || gate === undefined) return '';
  const subject = `; gate ${formatGate(step.gate)}`;
  switch (gate.verdict) {
    case 'passed': {
      const waitMs = getWaitMs(step);
      return `${subject} is true${waitMs === 0 ? '' : `, and has to stay true for ${formatDuration(waitMs)}`}`;
    }
    case 'failed':
      return `${subject} is false: the rollout fails when that lasts for ${formatDuration(GATE_TOLERANCE_MS)}`;
    case 'noData':
      return `${subject} has no result: ${observation?.text ?? 'it was not evaluated yet'}`;
  }
}

function getWaitMs({ wait }: CanaryStep): number {
  return wait === 'promotion' ? 0 : wait.ms;
}
