import { errorKindOf, type WorkResult } from '@cloudless/base';
import {
  LeadershipLostError,
  RestoredStateError,
  type ClusterState,
  type Transaction,
} from '@cloudless/cluster-state';

/**
 * Commits the decision of a pass and asks for another pass: after success because more may be left,
 * after a conflict because the pass read records that have changed (the view shows the change by
 * then). Returns `done` when this coordinator no longer leads or its store has been rolled back.
 * @throws Every error other than a conflict.
 */
export async function commitOrReconcileAgain(
  state: ClusterState,
  transaction: Transaction,
): Promise<WorkResult> {
  try {
    await state.commit(transaction);
    return { kind: 'again' };
  } catch (reason) {
    if (isFinalRefusal(reason)) return { kind: 'done' };
    if (errorKindOf(reason) !== 'conflict') throw reason;
    return { kind: 'again' };
  }
}

/**
 * Tells whether an error means that no later commit of this coordinator can succeed either: it no
 * longer leads, or its store has been rolled back.
 */
export function isFinalRefusal(reason: unknown): boolean {
  return reason instanceof LeadershipLostError || reason instanceof RestoredStateError;
}
