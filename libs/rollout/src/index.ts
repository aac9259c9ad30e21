export { decideNextSteps } from './steps/next-steps.js';
export type { RolloutDecision, RolloutStep, WaitReason, WakeOn } from './steps/next-steps.js';
export { createExtraTest } from './steps/replica-tally.js';
export { formatReplicaCount } from './steps/waiting.js';
export { mayLeaveOutWaiting } from './steps/observed.js';
export type { RolloutObserved, RolloutReplica, RolloutStrategy } from './steps/observed.js';
export {
  findImpossibleLimits,
  resolveLimits,
  stopsFirst,
  validateVoluntaryStop,
} from './steps/limits.js';
export type { RolloutLimits, RolloutLimitsSpec, VoluntaryStop } from './steps/limits.js';
export { predictFirstDecision, predictRollout } from './prediction/predict-rollout.js';
export type {
  RolloutPrediction,
  PredictedStep,
  PredictionGrants,
  PredictedOutcome,
} from './prediction/predict-rollout.js';
export { advanceRollout } from './state/advance-rollout.js';
export { getStepSize } from './state/canary-steps.js';
export { GATE_INTERVAL_MS, GATE_TOLERANCE_MS, formatGate } from './state/step-gate.js';
export { NO_ROLLOUT, formatDuration } from './state/rollout-state.js';
export type {
  RolloutAdvance,
  RolloutEvent,
  RolloutPhase,
  RolloutSettings,
  RolloutSituation,
  CanaryStep,
  GateObservation,
  GateVerdict,
  RolloutState,
} from './state/rollout-state.js';
