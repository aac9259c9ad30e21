import { InvalidInputError } from '@cloudless/base';
import type { ClusterState } from '@cloudless/cluster-state';

/** The fields by which a read asks how new its answer must be. */
interface ReadConsistency {
  readonly minRevision?: bigint;
  readonly linearizable?: boolean;
}

/**
 * Waits until the view is as new as a read asks for: `min_revision` of the request, or with
 * `linearizable` the newest revision of the store at the time of the call.
 * @returns Undefined when the request asks for nothing, or the view is new enough.
 * @throws kind `invalid` for both fields, `compacted` when the store has not reached the revision.
 */
export function waitForRequestedRevision(
  state: ClusterState,
  request: unknown,
  signal: AbortSignal,
): Promise<void> | undefined {
  const { minRevision = 0n, linearizable = false } = request as ReadConsistency;
  if (linearizable) {
    if (minRevision > 0n) {
      const message = 'cannot be combined with linearizable, which includes every revision';
      throw new InvalidInputError([{ field: 'min_revision', message }]);
    }
    return state.waitForNewest(signal);
  }
  if (minRevision <= state.view().revision) return undefined;
  return state.checkRevision(minRevision);
}
