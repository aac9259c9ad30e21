/** Figures of one version of a workload that a gate may use. */
export const GATE_FIGURES = [
  'requests_per_s',
  'errors_per_s',
  'error_ratio',
  'p50_ms',
  'p90_ms',
  'p99_ms',
  'connections_per_s',
  'connect_failures_per_s',
  'cpu_millis',
  'memory_bytes',
  'restarts',
] as const;

/** Name of a figure. */
export type GateFigure = (typeof GATE_FIGURES)[number];

/** Begins the names of the figures of the version that a rollout replaces. */
export const STABLE_PREFIX = 'stable.';

/** Returns true for the name of a figure, without a prefix. */
export function isGateFigure(name: string): name is GateFigure {
  return (GATE_FIGURES as readonly string[]).includes(name);
}
