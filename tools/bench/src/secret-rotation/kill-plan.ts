import type { LoggedStep } from './coordinator.js';

/** A moment of a rotation at which the coordinator is killed. */
export type KillPoint =
  /** The new key is stored, and about to become the active one. */
  | { readonly moment: 'pending' }
  /** The new key is active, and no version has it yet. */
  | { readonly moment: 'active' }
  /** At most `remaining` versions are left to encrypt again. */
  | {
      readonly moment: 'middle';
      readonly remaining: number;
      /** True: after a commit. False: while a commit is on the way. */
      readonly isCommitted: boolean;
    }
  /** No version has the old key, which is about to be deleted. */
  | { readonly moment: 'unused' };

/** Kills in the middle of each rotation. More of them would be closer together than the steps. */
const MIDDLE_KILLS = 8;

/** Returns the kills of one rotation of `versions` versions, in their order. */
export function planKills(versions: number): readonly KillPoint[] {
  const middle = Array.from({ length: MIDDLE_KILLS }, (_none, index): KillPoint => ({
    moment: 'middle',
    remaining: Math.floor((versions * (MIDDLE_KILLS - index)) / (MIDDLE_KILLS + 1)),
    isCommitted: index % 2 === 0,
  }));
  return [{ moment: 'pending' }, { moment: 'active' }, ...middle, { moment: 'unused' }];
}

/**
 * Returns the condition on the steps of a coordinator that tells when to kill it. Also true at the end
 * of the rotation: the moment was missed.
 * @param remaining - Versions that are left when the coordinator starts.
 */
export function createTrigger(point: KillPoint, remaining: number): (step: LoggedStep) => boolean {
  let left = remaining;
  return ({ step, isCommitted, versions }) => {
    if (isCommitted && step === 'reEncrypt') left -= versions;
    if (step === 'deleteKeys') return isCommitted || point.moment === 'unused';
    switch (point.moment) {
      case 'pending':
        return step === 'activate';
      case 'active':
        return step === 'reEncrypt';
      case 'middle':
        return step === 'reEncrypt' && isCommitted === point.isCommitted && left <= point.remaining;
      case 'unused':
        return false;
    }
  };
}
