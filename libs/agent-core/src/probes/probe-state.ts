import { formatDelay } from '../replica/restart-decision.js';
import type { ProbePlan, ProbePlans } from './probe-plan.js';

/** What one check found. */
export type CheckResult =
  | { readonly kind: 'passed' }
  /**
   * `reason` is the same as long as the cause is: `HTTP 503 from /healthz`; `detail` may differ
   * each time.
   */
  | { readonly kind: 'failed'; readonly reason: string; readonly detail?: string }
  /** The check could not be made, which says nothing of the container. */
  | { readonly kind: 'unknown'; readonly reason: string };

/** Why a check failed that was ended at its timeout. */
export function noAnswerWithin(timeoutMs: number): string {
  return `no answer within ${formatDelay(timeoutMs)}`;
}

/** What a probe says by its thresholds; `undecided` until the first of them is reached. */
export type ProbeVerdict = 'undecided' | 'passing' | 'failing';

/** What is known by the results of a probe so far. */
export interface ProbeState {
  readonly verdict: ProbeVerdict;
  /** Results of the same kind in a row, up to the threshold; one of the two is 0. */
  readonly passes: number;
  readonly failures: number;
  /** The newest failed check, when the last check failed. */
  readonly failure?: { readonly reason: string; readonly detail?: string };
}

/**
 * @param verdict - What is known already: `passing` for a replica that was ready when it was
 * adopted.
 */
export function newProbeState(verdict: ProbeVerdict): ProbeState {
  return { verdict, passes: 0, failures: 0 };
}

/** Counts one result. Pure. A result that is not known changes nothing. */
export function reduceProbe(
  state: ProbeState,
  result: CheckResult,
  { successThreshold, failureThreshold }: Pick<ProbePlan, 'successThreshold' | 'failureThreshold'>,
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
 * What a probe that does not pass says, for people: `readiness probe: HTTP 503 from /healthz, 3 of
 * 3 failed`. Counts are given only at the threshold: a text that changes with each check would be a
 * report, and a write, for each.
 */
export function textOfProbe(
  name: keyof ProbePlans,
  { verdict, passes, failures, failure }: ProbeState,
  { failureThreshold, successThreshold }: Pick<ProbePlan, 'successThreshold' | 'failureThreshold'>,
  { withDetail = true } = {},
): string {
  if (verdict === 'undecided' && failure === undefined) return `waiting for the ${name} probe`;
  if (failure === undefined) return `${name} probe: ${passes} of ${successThreshold} passed`;
  const detail = withDetail && failure.detail !== undefined ? ` (${failure.detail})` : '';
  const count = failures === failureThreshold ? `, ${failures} of ${failureThreshold} failed` : '';
  return `${name} probe: ${failure.reason}${detail}${count}`;
}
