import { backoffDelayMs, type BackoffPolicy } from '@cloudless/base';
import { formatNotStarted, formatRestartReason } from '@cloudless/api';
import type { ReplicaState } from './replica-state.js';
import type { ReplicaTarget } from './replica-target.js';

/** Delays between restarts in place: at most 5 min, as in Kubernetes. */
export const RESTART_BACKOFF: BackoffPolicy = { firstMs: 100, maxMs: 5 * 60_000 };
/**
 * A container that ran this long was healthy: its next exit counts as the first failure. 10 min, as
 * in Kubernetes.
 */
export const HEALTHY_AFTER_MS = 10 * 60_000;

/** Decision after an exit or a failed start. */
export type RestartDecision =
  | { readonly kind: 'succeeded'; readonly reason: string }
  | { readonly kind: 'failed'; readonly reason: string }
  /** `failures`: consecutive failures, including the exit or failed start decided on. */
  | {
      readonly kind: 'restart';
      readonly delayMs: number;
      readonly failures: number;
      readonly reason: string;
    };

/** Exit of a container, or a failed start. */
export type ContainerEnding =
  | {
      readonly kind: 'exited';
      readonly exitCode: number;
      readonly reason: string;
      /** Running time, milliseconds. */
      readonly upMs: number;
      /**
       * True when the agent stopped the container because a probe had failed. Counts as a failure
       * whatever the exit code.
       */
      readonly unhealthy?: boolean;
    }
  | { readonly kind: 'notStarted'; readonly reason: string };

/** Returns true when the restart policy `onFailure` restarts after this ending. */
export function isFailure(ending: ContainerEnding): boolean {
  return ending.kind === 'notStarted' || ending.exitCode !== 0 || ending.unhealthy === true;
}

/**
 * Applies the restart policy to an exit or a failed start.
 * @param failures - Consecutive exits and failed starts before `ending`. The count, and with it the
 *   number of used retries, starts again after a container that ran for {@link HEALTHY_AFTER_MS}.
 */
export function decideRestart(
  target: Pick<ReplicaTarget, 'restart' | 'maxRetries'>,
  ending: ContainerEnding,
  failures: number,
): RestartDecision {
  const { reason } = ending;
  if (!isFailure(ending) && target.restart !== 'always') return { kind: 'succeeded', reason };
  if (target.restart === 'never') return { kind: 'failed', reason: `${reason}; never restarted` };
  const previousFailures =
    ending.kind === 'exited' && ending.upMs >= HEALTHY_AFTER_MS ? 0 : failures;
  if (previousFailures >= target.maxRetries) {
    const retries = target.maxRetries === 1 ? '1 retry' : `${target.maxRetries} retries`;
    return { kind: 'failed', reason: `${reason}; gave up after ${retries}` };
  }
  const delayMs = backoffDelayMs(RESTART_BACKOFF, previousFailures + 1);
  return {
    kind: 'restart',
    delayMs,
    failures: previousFailures + 1,
    reason: formatRestartReason(reason, formatDelay(delayMs)),
  };
}

/** Returns the counts of a replica that is started again after an exit or a failed start. */
export function countRestart(
  { restarts, failedStarts }: Pick<ReplicaState, 'restarts' | 'failedStarts'>,
  ending: ContainerEnding,
): Pick<ReplicaState, 'restarts' | 'failedStarts'> {
  return {
    restarts: restarts + 1,
    failedStarts: ending.kind === 'notStarted' ? failedStarts + 1 : failedStarts,
  };
}

/**
 * Returns the end reason after an exit or a failed start. A failed start has no end reason of its
 * own: it only replaces the end reason of a previous container.
 */
export function toLastEnd(
  state: Pick<ReplicaState, 'lastEndReason'>,
  ending: ContainerEnding,
): Pick<ReplicaState, 'lastEndReason'> {
  if (ending.kind === 'exited') return { lastEndReason: ending.reason };
  return state.lastEndReason === undefined
    ? {}
    : { lastEndReason: formatNotStarted(ending.reason) };
}

/** Formats a delay for people: `200 ms`, `1.6 s`, `5 min`. */
export function formatDelay(delayMs: number): string {
  if (delayMs < 1_000) return `${Math.round(delayMs)} ms`;
  if (delayMs < 60_000) return `${Number((delayMs / 1_000).toFixed(1))} s`;
  return `${Number((delayMs / 60_000).toFixed(1))} min`;
}
