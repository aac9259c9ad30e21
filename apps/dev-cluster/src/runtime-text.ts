import type { Containers } from './dev-cluster.js';

/** What brings a container runtime of this repository's own. */
const SETUP = '`sudo node tools/containers/setup.mjs install` brings a container runtime';

/**
 * What the agents run workloads with, and why, in one line. @param chosen - The `--runtime` that
 * was asked for.
 */
export function runtimeText(containers: Containers, chosen: string): string {
  if ('runtime' in containers) return `processes, and containers by ${containers.runtime}`;
  if (chosen === 'process') return 'processes; containers are not used, as --runtime process says';
  return `processes; containers are not used: ${containers.why}; ${SETUP}`;
}
