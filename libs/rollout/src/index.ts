export { nextSteps } from './next-steps.js';
export type { RolloutDecision, RolloutStep, WaitReason, WakeOn } from './next-steps.js';
export type { RolloutObserved, RolloutReplica, RolloutStrategy } from './observed.js';
export { impossibleLimits, resolveLimits, validateVoluntaryStop } from './limits.js';
export type { RolloutLimits, RolloutLimitsSpec, VoluntaryStop } from './limits.js';
export { layOut } from './lay-out.js';
export type { LaidOut, LaidOutStep, LayOutGrants, LayOutVerdict } from './lay-out.js';
export { advanceRollout } from './advance.js';
export { NO_ROLLOUT, textOfMs } from './rollout-state.js';
export type {
  RolloutAdvance,
  RolloutNews,
  RolloutPhase,
  RolloutSettings,
  RolloutSituation,
  RolloutStage,
  RolloutState,
} from './rollout-state.js';
