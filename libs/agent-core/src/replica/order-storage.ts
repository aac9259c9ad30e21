import { errorKindOf, errorMessageOf } from '@cloudless/base';
import { isEnded } from './replica-phase.js';
import type { ReplicaState, UnstoredEnd } from './replica-state.js';

/**
 * Time within one session after which the agent gives up a replica whose start order it has never
 * stored, so that the coordinator places another replica, milliseconds. By then the coordinator
 * knows that the disk of this node is full, if it is.
 */
export const GIVE_UP_START_MS = 10_000;

/** Returns the reason of a failed save of an order, for people. */
export function describeNotStored(reason: unknown): string {
  return errorKindOf(reason) === 'exhausted'
    ? 'the disk of the node is full (no space left on device)'
    : `the node cannot store the order: ${errorMessageOf(reason)}`;
}

/**
 * Returns the state after a start order that could not be stored. Only a replica that waits for this
 * order shows the reason: a running replica goes on by its earlier order.
 */
export function withStartRefused(state: ReplicaState, cause: string): ReplicaState {
  const waits = state.activity.kind === 'none' || state.activity.kind === 'unconfirmed';
  const reason = `cannot start: ${cause}`;
  if (!waits || state.stop !== undefined || state.reason === reason) return state;
  return { ...state, reason };
}

/**
 * Returns true for a replica of which this node stores nothing and runs nothing, so that no agent
 * will start it without another order.
 */
export function mayGiveUpStart({ activity, stop, heldRevision }: ReplicaState): boolean {
  return activity.kind === 'none' && stop === undefined && heldRevision === 0n;
}

/** Returns the state with a stop or forget order that could not be stored. */
export function withUnstoredEnd(state: ReplicaState, unstored: UnstoredEnd): ReplicaState {
  const { unstored: before } = state;
  const isKnown =
    before !== undefined &&
    before.storedRevision === unstored.storedRevision &&
    before.isMarked === unstored.isMarked &&
    before.reason === unstored.reason;
  return isKnown ? state : { ...state, unstored: { ...unstored, ...keepPhase(before) } };
}

/** The phase before the first of several unstored orders is the one that was reported. */
function keepPhase(before: UnstoredEnd | undefined): Partial<UnstoredEnd> {
  return before === undefined ? {} : { phase: before.phase };
}

/** Returns the state once its newest stop or forget order is stored. */
export function withStoredEnd(state: ReplicaState): ReplicaState {
  if (state.unstored === undefined) return state;
  const { unstored: _unstored, ...stored } = state;
  return stored;
}

/**
 * Returns the state as reports may show it. A report must hold after a restart of the agent: it
 * acknowledges stored orders only, and a replica that the next agent would start has not ended.
 */
export function toReportedState(state: ReplicaState): ReplicaState {
  const { unstored } = state;
  if (unstored === undefined) return state;
  const { storedRevision: heldRevision, isMarked, phase, reason } = unstored;
  if (isMarked) return { ...state, heldRevision };
  const progress = isEnded(state.phase) ? 'stopped' : 'stopping';
  return {
    ...state,
    ...{ heldRevision, phase },
    reason: `${progress}, but the stop order is not stored: ${reason}`,
  };
}
