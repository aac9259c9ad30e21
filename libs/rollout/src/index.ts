export { decideNextSteps } from './next-steps.js';
export type { RolloutDecision, RolloutStep, WaitReason, WakeOn } from './next-steps.js';
export type { RolloutObserved, RolloutReplica, RolloutStrategy } from './observed.js';
export { findImpossibleLimits, resolveLimits, validateVoluntaryStop } from './limits.js';
export type { RolloutLimits, RolloutLimitsSpec, VoluntaryStop } from './limits.js';
export { predictRollout } from './lay-out.js';
export type {
  RolloutPrediction,
  PredictedStep,
  PredictionGrants,
  PredictedOutcome,
} from './lay-out.js';
export { advanceRollout } from './advance.js';
export { NO_ROLLOUT, formatDuration } from './rollout-state.js';
export type {
  RolloutAdvance,
  RolloutEvent,
  RolloutPhase,
  RolloutSettings,
  RolloutSituation,
  CanaryStep,
  RolloutState,
} from './rollout-state.js';
