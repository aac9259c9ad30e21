import { RolloutStatus_Phase as Phase } from './gen.js';

/**
 * Whether a rollout has come to its end: nothing of another version is left. A failed one has not;
 * it can be resumed.
 */
export const isRolledOut = (phase: Phase | undefined): boolean =>
  phase === Phase.COMPLETED || phase === Phase.ROLLED_BACK;
