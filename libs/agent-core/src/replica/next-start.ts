import type { ReplicaState, ReplicaTransition } from './replica-state.js';

/**
 * Returns the state of a transition, with the time of the next start when the transition begins a
 * back-off.
 * @param nowMs - Time of the transition, milliseconds since the epoch.
 */
export function withNextStart({ state, effects }: ReplicaTransition, nowMs: number): ReplicaState {
  const { activity } = state;
  if (activity.kind !== 'backingOff') return state;
  for (const effect of effects)
    if (effect.kind === 'startAfter' && effect.isBackoff)
      return {
        ...state,
        activity: { ...activity, nextStartAtMs: Math.round(nowMs + effect.delayMs) },
      };
  return state;
}
