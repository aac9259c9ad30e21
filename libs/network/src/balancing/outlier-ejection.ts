import type { OutlierEjectionConfig } from './balancer-types.js';

/** Failures of an endpoint that one node has seen. */
export interface EjectionState {
  /** Failed connects in a row. */
  failures: number;
  /** Ejections since the endpoint last worked for long enough. */
  ejections: number;
  /** Monotonic time in milliseconds at which the ejection ends. Undefined: not ejected. */
  ejectedUntilMs: number | undefined;
  /** Monotonic time in milliseconds at which the last ejection ended. */
  returnedAtMs: number;
}

/** Longest ejection as a multiple of the first. */
const MAX_EJECTION_FACTOR = 10;

/** State of an endpoint that has not failed. */
export function createEjectionState(): EjectionState {
  return { failures: 0, ejections: 0, ejectedUntilMs: undefined, returnedAtMs: -Infinity };
}

/** Largest number of endpoints, of `ready` ready endpoints, that may be ejected at a time. */
export function maxEjected(config: OutlierEjectionConfig, ready: number): number {
  return Math.floor((ready * Math.min(100, config.maxEjectionPercent)) / 100);
}

/** Notes a successful connect. An endpoint that works for as long as its last ejection is clean. */
export function noteConnected(
  state: EjectionState,
  config: OutlierEjectionConfig,
  nowMs: number,
): void {
  state.failures = 0;
  if (state.ejections === 0) return;
  if (nowMs - state.returnedAtMs >= ejectionMs(config, state.ejections)) state.ejections = 0;
}

/**
 * Notes a failed connect.
 * @param mayEject - True when one more endpoint may be ejected.
 * @returns True when this failure ejects the endpoint.
 */
export function noteFailed(
  state: EjectionState,
  config: OutlierEjectionConfig,
  nowMs: number,
  mayEject: boolean,
): boolean {
  state.failures += 1;
  const isDue = state.failures >= config.consecutiveFailures;
  if (!isDue || !mayEject || state.ejectedUntilMs !== undefined) return false;
  state.ejections += 1;
  state.ejectedUntilMs = nowMs + ejectionMs(config, state.ejections);
  return true;
}

/**
 * Ends an ejection. The endpoint is on probation: its next failure ejects the endpoint again, a
 * success ends the probation.
 */
export function endEjection(
  state: EjectionState,
  config: OutlierEjectionConfig,
  nowMs: number,
): void {
  state.ejectedUntilMs = undefined;
  state.returnedAtMs = nowMs;
  state.failures = config.consecutiveFailures - 1;
}

function ejectionMs(config: OutlierEjectionConfig, ejections: number): number {
  return config.baseEjectionMs * Math.min(MAX_EJECTION_FACTOR, 2 ** (ejections - 1));
}
