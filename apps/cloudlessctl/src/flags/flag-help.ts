/** Heading in the help for the fields below each prefix of a path. The first match counts. */
const HEADINGS: readonly (readonly [prefix: string, heading: string])[] = [
  ['replicas', 'Replicas:'],
  ['mode', 'Replicas:'],
  ['restart.', 'Replicas:'],
  ['priority', 'Replicas:'],
  ['termination_grace_period', 'Replicas:'],
  ['resources.', 'Resources:'],
  ['shm_size_bytes', 'Resources:'],
  ['ulimits', 'Resources:'],
  ['liveness_probe', 'Probes:'],
  ['readiness_probe', 'Probes:'],
  ['startup_probe', 'Probes:'],
  ['placement.', 'Placement:'],
  ['rollout.', 'Rollout:'],
  ['security.', 'Security:'],
  ['identity', 'Security:'],
  ['sysctls', 'Security:'],
  ['devices', 'Security:'],
  ['network.', 'Network:'],
  ['ports', 'Network:'],
  ['secrets', 'Secrets and configs:'],
  ['configs', 'Secrets and configs:'],
  ['image_pull.secret', 'Secrets and configs:'],
  ['labels', 'Labels:'],
  ['annotations', 'Labels:'],
];

/** The headings in the order of the help. */
export const FLAG_HEADINGS: readonly string[] = [
  'Container:',
  ...['Replicas:', 'Resources:', 'Network:', 'Secrets and configs:', 'Probes:', 'Rollout:'],
  ...['Placement:', 'Security:', 'Labels:'],
];

/**
 * Returns the heading of the flag for a field of the spec.
 * @param path - Path of the field, as in an update mask.
 */
export function getFlagHeading(path: string): string {
  return HEADINGS.find(([prefix]) => path.startsWith(prefix))?.[1] ?? 'Container:';
}

/**
 * Default value of each flag for a new workload. A spec compares the values with those of the API.
 */
export const FLAG_DEFAULTS: Readonly<Record<string, string>> = {
  '--replicas': '1',
  '--mode': 'Replicated',
  '--restart': 'Always',
  '--priority': '50',
  '--grace-period': '10s',
  '--cpu': '100m',
  '--memory': '64Mi',
  '--pull': 'IfNotPresent',
  '--strategy': 'RollingUpdate',
  '--max-surge': '1',
  '--max-unavailable': '0',
  '--max-failed-new': '3',
  '--min-ready': '2s',
  '--progress-deadline': '10m',
  '--pause-duration': '0s',
  '--on-failure': 'Pause',
  '--promotion': 'Auto',
};
