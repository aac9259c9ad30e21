import { RolloutStatus_Phase as Phase } from '../gen.js';

/**
 * Returns true when a rollout has ended (COMPLETED or ROLLED_BACK) and no replica of another
 * version is left. A failed rollout has not ended: it can be resumed.
 * @param phase - Undefined when there was no rollout yet.
 */
export const isRolledOut = (phase: Phase | undefined): boolean =>
  phase === Phase.COMPLETED || phase === Phase.ROLLED_BACK;
