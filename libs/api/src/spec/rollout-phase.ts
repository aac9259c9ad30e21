import { RolloutStatus_Phase as Phase } from '../gen.js';

/**
 * True when a rollout has ended and no replica of another version is left. A failed rollout has not
 * ended; it can be resumed.
 */
export const isRolledOut = (phase: Phase | undefined): boolean =>
  phase === Phase.COMPLETED || phase === Phase.ROLLED_BACK;
