import { CloudlessError } from '@cloudless/base';
import type { ClusterState } from '@cloudless/cluster-state';

/**
 * Age from which on the view of a coordinator that follows is too old for reads and credentials,
 * milliseconds. Above the few seconds of an election of etcd.
 */
export const MAX_VIEW_AGE_MS = 5_000;

/** The part of a {@link ClusterState} that tells how old its view is. */
export type AgingState = Pick<ClusterState, 'isLeading' | 'viewAgeMs'>;

/**
 * Returns true when a coordinator that follows has not reached the store for
 * {@link MAX_VIEW_AGE_MS}: its view may lack changes that others have acknowledged long ago, such as
 * a revocation. Never true for the leader, which makes all changes of credentials itself.
 */
export function isViewStale({ isLeading, viewAgeMs }: AgingState): boolean {
  return viewAgeMs > MAX_VIEW_AGE_MS && !isLeading;
}

/**
 * Returns the error of a coordinator whose view is stale.
 * @param consequence - Effect on the call, such as `so the stream ended`.
 */
export function createStaleViewError(
  { viewAgeMs }: AgingState,
  consequence: string,
): CloudlessError {
  const seconds = Math.floor(viewAgeMs / 1_000);
  return new CloudlessError(
    'STORE_UNAVAILABLE',
    `this coordinator has not reached the state store for ${seconds} s, ${consequence}; use another coordinator, or retry`,
  );
}
