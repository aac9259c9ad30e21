import type { ImagePull, ReplicaEvent, ReplicaState } from './replica-state.js';

/**
 * Returns the state after a change of the image pull of the container that is being started. The
 * reason of a stop in progress stays.
 */
export function withPull(
  state: ReplicaState,
  { containerId, pull }: Extract<ReplicaEvent, { kind: 'pullChanged' }>,
): ReplicaState {
  const { activity, stop } = state;
  if (activity.kind !== 'starting' || activity.containerId !== containerId) return state;
  const reason = stop === undefined ? toPullReason(pull, state.imagePull) : state.reason;
  return { ...state, imagePull: pull, reason };
}

/**
 * Returns the reason of a replica whose image is being pulled; empty in other phases of the pull.
 * Includes the failure of the previous pull of the same image.
 */
function toPullReason({ image, phase }: ImagePull, before: ImagePull | undefined): string {
  if (phase !== 'pulling') return '';
  return before?.phase === 'failed' && before.image === image
    ? `pulling ${image} again: ${before.reason}`
    : `pulling ${image}`;
}
