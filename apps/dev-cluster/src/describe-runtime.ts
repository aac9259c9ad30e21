import type { ContainerSupport } from './dev-cluster.js';

/** Hint with the command that installs a container runtime. */
const SETUP = '`sudo node tools/containers/setup.mjs install` installs one';

/**
 * Returns how the agents run workloads, with the reason when they run no containers.
 * @param chosen - Value of the flag `--runtime`.
 */
export function describeRuntime(containers: ContainerSupport, chosen: string): string {
  if ('runtime' in containers) return `processes, and containers by ${containers.runtime}`;
  if (chosen === 'process') return 'processes; containers are off because of --runtime process';
  return `processes; containers are not used: ${containers.reason}; ${SETUP}`;
}
