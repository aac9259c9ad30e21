import { errorKindOf, type WorkResult } from '@cloudless/base';
import type { ClusterState, Transaction } from '@cloudless/cluster-state';

/**
 * Commits what a pass decided, and asks for another pass: at once after success because more may be left, a little later after
 * a conflict because something it had read has changed. One that no longer leads has nothing to do any more: each try would
 * conflict for ever.
 */
export async function commitOrPlanAgain(state: ClusterState, transaction: Transaction): Promise<WorkResult> {
  try {
    await state.commit(transaction);
    return { kind: 'again' };
  } catch (reason) {
    if (errorKindOf(reason) !== 'conflict') throw reason;
    return { kind: state.isLeading ? 'retry' : 'done' };
  }
}
