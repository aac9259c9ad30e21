import { formatDelay } from '../replica/restart-decision.js';
import type { ProbeSchedule, ProbeSchedules } from './probe-schedule.js';

/** Result of one check. */
export type CheckResult =
  | { readonly kind: 'passed' }
  /**
   * `reason` stays the same as long as the cause does, such as `HTTP 503 from /healthz`; `detail`
   * may differ with each check.
   */
  | { readonly kind: 'failed'; readonly reason: string; readonly detail?: string }
  /** The check could not be made; the result does not count for or against the container. */
  | { readonly kind: 'unknown'; readonly reason: string };

/** Returns the failure reason of a check that was ended at its timeout. */
export function formatTimeout(timeoutMs: number): string {
  return `no answer within ${formatDelay(timeoutMs)}`;
}

/** Verdict of a probe; `undecided` until one of its thresholds is reached for the first time. */
export type ProbeVerdict = 'undecided' | 'passing' | 'failing';

/** Accumulated results of a probe. */
export interface ProbeState {
  readonly verdict: ProbeVerdict;
  /** Consecutive results of the same kind, at most the threshold; one of the two counts is 0. */
  readonly passes: number;
  readonly failures: number;
  /** Reason of the last check; absent when the last check passed. */
  readonly failure?: { readonly reason: string; readonly detail?: string };
}

/**
 * Creates the state of a probe before its first check.
 * @param verdict - Initial verdict: `passing` for a container that was ready when it was adopted.
 */
export function createProbeState(verdict: ProbeVerdict): ProbeState {
  return { verdict, passes: 0, failures: 0 };
}

/** Returns the state after one more result. An `unknown` result does not change the state. Pure. */
export function reduceProbe(
  state: ProbeState,
  result: CheckResult,
  {
    successThreshold,
    failureThreshold,
  }: Pick<ProbeSchedule, 'successThreshold' | 'failureThreshold'>,
): ProbeState {
  switch (result.kind) {
    case 'unknown':
      return state;
    case 'passed': {
      const passes = Math.min(state.passes + 1, successThreshold);
      return {
        verdict: passes === successThreshold ? 'passing' : state.verdict,
        passes,
        failures: 0,
      };
    }
    case 'failed': {
      const failures = Math.min(state.failures + 1, failureThreshold);
      const { reason, detail } = result;
      const failure = detail === undefined ? { reason } : { reason, detail };
      return {
        verdict: failures === failureThreshold ? 'failing' : state.verdict,
        passes: 0,
        failures,
        failure,
      };
    }
  }
}

/**
 * Returns the reason why a probe does not pass, for people, such as
 * `readiness probe: HTTP 503 from /healthz, 3 of 3 failed`. The text has a count of failures only
 * at the threshold: a text that changes with each check would cause a report, and a write in the
 * store, for each check.
 * @param withDetail - Includes the detail of the last failure, such as the output of a command.
 */
export function formatProbeReason(
  name: keyof ProbeSchedules,
  { verdict, passes, failures, failure }: ProbeState,
  {
    failureThreshold,
    successThreshold,
  }: Pick<ProbeSchedule, 'successThreshold' | 'failureThreshold'>,
  { withDetail = true } = {},
): string {
  if (verdict === 'undecided' && failure === undefined) return `waiting for the ${name} probe`;
  if (failure === undefined) return `${name} probe: ${passes} of ${successThreshold} passed`;
  const detail = withDetail && failure.detail !== undefined ? ` (${failure.detail})` : '';
  const count = failures === failureThreshold ? `, ${failures} of ${failureThreshold} failed` : '';
  return `${name} probe: ${failure.reason}${detail}${count}`;
}
