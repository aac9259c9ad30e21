import { backoffDelayMs, type BackoffPolicy } from '@cloudless/base';
import type { ReplicaPlan } from './replica-plan.js';

/** Delays between restarts in place (DESIGN: restart or replace). */
export const RESTART_BACKOFF: BackoffPolicy = { firstMs: 100, maxMs: 5 * 60_000 };
/** A container that ran this long was healthy: the next crash counts as the first. */
export const HEALTHY_AFTER_MS = 10 * 60_000;

/** What follows on the end of a container, or on a failed start. */
export type RestartDecision =
  | { readonly kind: 'succeeded'; readonly reason: string }
  | { readonly kind: 'failed'; readonly reason: string }
  /** `failures`: how many in a row, this one included. */
  | {
      readonly kind: 'restart';
      readonly delayMs: number;
      readonly failures: number;
      readonly reason: string;
    };

/** How a container ended, or why it could not be started. */
export type Ending =
  | {
      readonly kind: 'exited';
      readonly exitCode: number;
      readonly reason: string;
      readonly upMs: number;
      /**
       * It was ended by us because a probe had failed: that is a failure whatever the exit code.
       */
      readonly unhealthy?: boolean;
    }
  | { readonly kind: 'notStarted'; readonly reason: string };

/** Whether it is one that a policy for failures speaks of. */
export function isFailure(ending: Ending): boolean {
  return ending.kind === 'notStarted' || ending.exitCode !== 0 || ending.unhealthy === true;
}

/**
 * Decides by the restart policy.
 * @param failures - Ends and failed starts in a row before this one. The count, and with it the
 *   retries spent, begins anew after a container that was up for {@link HEALTHY_AFTER_MS}.
 */
export function decideRestart(
  plan: Pick<ReplicaPlan, 'restart' | 'maxRetries'>,
  ending: Ending,
  failures: number,
): RestartDecision {
  const { reason } = ending;
  if (!isFailure(ending) && plan.restart !== 'always') return { kind: 'succeeded', reason };
  if (plan.restart === 'never') return { kind: 'failed', reason: `${reason}; never restarted` };
  const before = ending.kind === 'exited' && ending.upMs >= HEALTHY_AFTER_MS ? 0 : failures;
  if (before >= plan.maxRetries) {
    const tries = plan.maxRetries === 1 ? '1 retry' : `${plan.maxRetries} retries`;
    return { kind: 'failed', reason: `${reason}; gave up after ${tries}` };
  }
  const delayMs = backoffDelayMs(RESTART_BACKOFF, before + 1);
  return {
    kind: 'restart',
    delayMs,
    failures: before + 1,
    reason: `${reason}, restarting in ${formatDelay(delayMs)}`,
  };
}

/** A delay for people: `200 ms`, `1.6 s`, `5 min`. */
export function formatDelay(delayMs: number): string {
  if (delayMs < 1_000) return `${Math.round(delayMs)} ms`;
  if (delayMs < 60_000) return `${Number((delayMs / 1_000).toFixed(1))} s`;
  return `${Number((delayMs / 60_000).toFixed(1))} min`;
}
