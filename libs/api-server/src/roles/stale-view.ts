import { CloudlessError } from '@cloudless/base';
import type { ClusterState } from '@cloudless/cluster-state';
import { NOT_STARTED } from './role-errors.js';

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
 * Returns the error of a call that a coordinator with a stale view has not begun. With the reason
 * LEADERSHIP_LOST, clients and coordinators send the call to another coordinator.
 * @param consequence - Effect on the call, such as `so it cannot check the credential`.
 */
export function createStaleViewError(state: AgingState, consequence: string): CloudlessError {
  return createError(state, consequence, { [NOT_STARTED]: 'true' });
}

/** Returns the error that ends an open stream of a coordinator whose view has become stale. */
export function createStaleStreamError(state: AgingState): CloudlessError {
  return createError(state, 'so the stream ended', {});
}

function createError(
  { viewAgeMs }: AgingState,
  consequence: string,
  metadata: Readonly<Record<string, string>>,
): CloudlessError {
  const seconds = Math.floor(viewAgeMs / 1_000);
  return new CloudlessError(
    'LEADERSHIP_LOST',
    `this coordinator has not reached the state store for ${seconds} s, ${consequence}; use another coordinator, or retry`,
    { metadata },
  );
}
