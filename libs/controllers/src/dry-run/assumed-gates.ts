import {
  GATE_INTERVAL_MS,
  formatDuration,
  formatGate,
  type CanaryStep,
  type RolloutSettings,
  type RolloutState,
  type WaitReason,
} from '@cloudless/rollout';

/**
 * Returns rollout settings for a prediction, in which the gates of canary steps pass: a gate is
 * true from its first evaluation, so a step ends after its wait, or after one evaluation without a
 * wait.
 */
export function assumeGatesPass(settings: RolloutSettings): RolloutSettings {
  return { ...settings, canarySteps: settings.canarySteps.map(assumeGatePasses) };
}

function assumeGatePasses({ gate, ...step }: CanaryStep): CanaryStep {
  if (gate === undefined || step.wait === 'promotion') return step;
  return { ...step, wait: { ms: Math.max(step.wait.ms, GATE_INTERVAL_MS) } };
}

/**
 * Returns the rollout state at the start of a prediction: the wait of a step with a gate counts
 * from the time since when the gate has been true, else from now.
 */
export function startGatedWait(state: RolloutState, nowMs: number): RolloutState {
  const { gate, stepReachedAtMs } = state;
  if (gate === undefined || stepReachedAtMs === undefined) return state;
  const sinceMs = gate.verdict === 'passed' ? Math.max(gate.sinceMs, stepReachedAtMs) : nowMs;
  return { ...state, stepReachedAtMs: sinceMs };
}

/**
 * Returns the text of the wait of a canary step as configured: `wait 5m; gate "restarts < 1" is
 * assumed to pass`. Empty for a step that passes at once.
 */
export function describeStepWait({ wait, gate }: CanaryStep): string {
  const parts: string[] = [];
  if (wait === 'promotion') parts.push('wait until promoted');
  else if (wait.ms > 0) parts.push(`wait ${formatDuration(wait.ms)}`);
  if (gate !== undefined) parts.push(`gate ${formatGate(gate)} is assumed to pass`);
  return parts.join('; ');
}

/**
 * Returns the text of a wait that ends by time alone, with the full time, even when a part of the
 * time has passed already; undefined for any other wait, and empty for a step that passes at once.
 */
export function describeTimedWait(
  { canarySteps, pauseMs }: RolloutSettings,
  { stepsDone, stepReachedAtMs, fromVersion }: RolloutState,
  waitKind: WaitReason['kind'] | undefined,
): string | undefined {
  const canaryStep = canarySteps[stepsDone];
  if (stepReachedAtMs !== undefined && canaryStep !== undefined && canaryStep.wait !== 'promotion')
    return describeStepWait(canaryStep);
  return waitKind === 'kept'
    ? `keep version ${fromVersion} for ${formatDuration(pauseMs)}`
    : undefined;
}
