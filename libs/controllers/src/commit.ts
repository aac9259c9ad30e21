import { errorKindOf, type WorkResult } from '@cloudless/base';
import {
  LeadershipLostError,
  RestoredStateError,
  type ClusterState,
  type Transaction,
} from '@cloudless/cluster-state';

/**
 * Commits what a pass decided, and asks for another pass: after success because more may be left,
 * after a conflict because something it had read has changed, which the view shows by then. One
 * that no longer leads, or whose store turned out to have gone back in time, has nothing to do any
 * more.
 */
export async function commitOrPlanAgain(
  state: ClusterState,
  transaction: Transaction,
): Promise<WorkResult> {
  try {
    await state.commit(transaction);
    return { kind: 'again' };
  } catch (reason) {
    if (isOver(reason)) return { kind: 'done' };
    if (errorKindOf(reason) !== 'conflict') throw reason;
    return { kind: 'again' };
  }
}

/** Nothing that this coordinator plans now will be committed. */
export function isOver(reason: unknown): boolean {
  return reason instanceof LeadershipLostError || reason instanceof RestoredStateError;
}
