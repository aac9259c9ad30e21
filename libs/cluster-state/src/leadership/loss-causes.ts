import type { KnownLeader } from './leadership-lost.js';
import { ACT_AFTER_RENEWAL_MS } from './election-timing.js';

/** A renewal of the leader lease that the store has not confirmed. */
export interface PendingRenewal {
  /** Monotonic time at which the renewal was sent. */
  readonly sentAtMs: number;
  /** The error of the store. Absent: the store has not answered yet. */
  readonly failure?: unknown;
}

/**
 * Returns the cause of the end of a term that reached its own limit.
 * @param deadlineMs - Monotonic time until which the leader might act.
 * @param pending - The newest renewal. Absent: none was sent since the last confirmed renewal.
 */
export function createLateRenewalCause(
  nowMs: number,
  deadlineMs: number,
  pending: PendingRenewal | undefined,
): Error {
  const sinceMs = Math.round(nowMs - deadlineMs + ACT_AFTER_RENEWAL_MS);
  const state = describePending(nowMs, pending);
  return new Error(
    `no renewal of the leader lease was confirmed for ${sinceMs} ms (limit ${ACT_AFTER_RENEWAL_MS} ms); ${state}`,
    pending !== undefined && 'failure' in pending ? { cause: pending.failure } : {},
  );
}

function describePending(nowMs: number, pending: PendingRenewal | undefined): string {
  if (pending === undefined) return 'none was sent, because this process did not run in time';
  const agoMs = Math.round(nowMs - pending.sentAtMs);
  return 'failure' in pending
    ? `the newest was sent ${agoMs} ms ago and failed`
    : `the newest was sent ${agoMs} ms ago and is not answered`;
}

/**
 * Returns the cause of the end of a term whose lease was no longer in the store.
 * @param remainingMs - Time until the own limit of the leader, milliseconds.
 */
export function createLeaseEndedCause(remainingMs: number): Error {
  return new Error(
    `the lease of the leader has ended in the store, ${Math.max(0, Math.round(remainingMs))} ms before the limit of this coordinator`,
  );
}

/**
 * Returns the cause of the end of a term that another leader has ended.
 * @param other - The leader by the store. Absent: the store has no record of a leader.
 * @param conflict - The refused commit that showed it.
 */
export function createOtherLeaderCause(other: OtherLeader | undefined, conflict?: unknown): Error {
  const options = conflict === undefined ? {} : { cause: conflict };
  if (other === undefined) return new Error('the leader record is gone from the store', options);
  const name = other.coordinatorId === '' ? other.holder : other.coordinatorId;
  return new Error(`coordinator ${name} leads with epoch ${other.epoch}`, options);
}

/** Fields of a leader record or a lease record. */
export type OtherLeader = Pick<KnownLeader, 'epoch' | 'coordinatorId'> & {
  readonly holder: string;
};
