import {
  backoffDelayMs,
  sleep,
  type BackoffPolicy,
  type Clock,
  type StopSignal,
} from '@cloudless/base';
import type { ProbeSchedule } from './probe-schedule.js';
import { formatTimeout, type CheckResult } from './probe-state.js';

/**
 * Delays between checks before the container is ready for the first time. With a factor of 1.25 the
 * replica becomes ready at most a quarter of the container's own start time late. No maximum: the
 * caller limits the delay to the period.
 */
const EARLY_CHECK_BACKOFF: BackoffPolicy = { firstMs: 100, maxMs: 24 * 3_600_000, factor: 1.25 };

/** Makes one check. Rejects only for programming errors; ends soon after `signal` is aborted. */
export type RunCheck = (signal: AbortSignal) => Promise<CheckResult>;

export interface ProbeRun {
  readonly schedule: Pick<ProbeSchedule, 'periodMs' | 'timeoutMs'>;
  /** Delay before the first check. */
  readonly firstDelayMs: number;
  readonly check: RunCheck;
  /** @returns `soon` when the next check may come before the period has passed. */
  readonly onResult: (result: CheckResult) => 'atPeriod' | 'soon';
  readonly clock: Clock;
}

/**
 * Makes checks one at a time until `signal` is aborted. Skips checks that are due while another
 * check runs.
 * @throws StoppedError once `signal` is aborted and the current check has ended.
 */
export async function runProbe(
  { schedule, firstDelayMs, check, onResult, clock }: ProbeRun,
  signal: StopSignal,
): Promise<never> {
  let due = clock.now() + firstDelayMs;
  for (let checkCount = 1; ; checkCount += 1) {
    await sleep(clock, Math.max(0, due - clock.now()), signal);
    const next = { soon: false };
    await checkOnce(check, schedule.timeoutMs, clock, signal, (result) => {
      if (!signal.aborted) next.soon = onResult(result) === 'soon';
    });
    const intervalMs = next.soon
      ? Math.min(schedule.periodMs, Math.round(backoffDelayMs(EARLY_CHECK_BACKOFF, checkCount)))
      : schedule.periodMs;
    due = computeNextDue(due, intervalMs, clock.now());
  }
}

/**
 * Returns the first time at or after `now` that is `due` plus a whole number of intervals, at least
 * one interval.
 */
export function computeNextDue(due: number, intervalMs: number, now: number): number {
  return due + intervalMs * Math.max(1, Math.ceil((now - due) / intervalMs));
}

/**
 * Makes one check and calls `onResult` exactly once, at the timeout at the latest, unless `signal`
 * is aborted before. Resolves when the check has ended.
 */
async function checkOnce(
  check: RunCheck,
  timeoutMs: number,
  clock: Clock,
  signal: StopSignal,
  onResult: (result: CheckResult) => void,
): Promise<void> {
  const checkAbort = new AbortController();
  const abort = (): void => checkAbort.abort();
  let timedOut = false;
  signal.addEventListener('abort', abort, { once: true });
  const timer = clock.setTimer(timeoutMs, () => {
    timedOut = true;
    onResult({ kind: 'failed', reason: formatTimeout(timeoutMs) });
    checkAbort.abort();
  });
  try {
    const result = await check(checkAbort.signal);
    if (!timedOut) onResult(result);
  } finally {
    timer.cancel();
    signal.removeEventListener('abort', abort);
  }
}
