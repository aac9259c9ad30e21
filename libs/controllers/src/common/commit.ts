import { errorKindOf, type WorkResult } from '@cloudless/base';
import {
  LeadershipLostError,
  RestoredStateError,
  type ClusterState,
  type Transaction,
} from '@cloudless/cluster-state';

/**
 * Commits the decision of a pass.
 * @returns `again` after success, because more may be left to do, and after a conflict, because the
 *   pass read records that have changed (the view shows the change by then); `done` when this
 *   coordinator no longer leads or its store has been rolled back.
 * @throws Every other error of the commit.
 */
export async function commitOrReconcileAgain(
  state: ClusterState,
  transaction: Transaction,
): Promise<WorkResult> {
  const result = await commitPart(state, transaction);
  return result.kind === 'committed' ? { kind: 'again' } : result;
}

/**
 * Commits a part of the decision of a pass.
 * @returns `committed` with the revision of the commit, otherwise the result of the pass: as for
 *   {@link commitOrReconcileAgain}.
 * @throws Every error of the commit but a conflict and a final refusal.
 */
export async function commitPart(
  state: ClusterState,
  transaction: Transaction,
): Promise<WorkResult | { readonly kind: 'committed'; readonly revision: bigint }> {
  try {
    return { kind: 'committed', revision: await state.commit(transaction) };
  } catch (reason) {
    if (isFinalRefusal(reason)) return { kind: 'done' };
    if (errorKindOf(reason) !== 'conflict') throw reason;
    return { kind: 'again' };
  }
}

/**
 * Returns true for the error of a coordinator that no longer leads, or whose store has been rolled
 * back: a later commit would fail in the same way.
 */
export function isFinalRefusal(reason: unknown): boolean {
  return reason instanceof LeadershipLostError || reason instanceof RestoredStateError;
}
