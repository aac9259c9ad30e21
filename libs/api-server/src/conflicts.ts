import { errorKindOf } from '@cloudless/base';
import type { ClusterState } from '@cloudless/cluster-state';

/**
 * Runs an attempt to read, decide and commit until it meets no conflict. Before it starts over, the view has caught up with
 * what it had met: else it would decide on the same old state again.
 * @param maxAttempts - After so many conflicts the last one is thrown: somebody else is writing the same all the time.
 */
export async function withoutConflict<Result>(
  state: Pick<ClusterState, 'reached'>,
  maxAttempts: number,
  attempt: () => Promise<Result>,
): Promise<Result> {
  for (let count = 1; ; count += 1) {
    try {
      return await attempt();
    } catch (reason) {
      // A generation that the caller expected and that is not there is for the caller to resolve.
      const changedAt = errorKindOf(reason) === 'conflict' ? changedAtOf(reason) : undefined;
      if (changedAt === undefined || count >= maxAttempts) throw reason;
      if (typeof changedAt === 'bigint') await state.reached(changedAt);
    }
  }
}

/** The revision at which the store's conflict was, `absent` when the record is gone; undefined for any other error. */
function changedAtOf(reason: unknown): unknown {
  return reason instanceof Error && 'changedAt' in reason ? reason.changedAt : undefined;
}
