import type { ContainerSupport } from './dev-cluster.js';

/** Command that installs a container runtime. */
const SETUP = '`sudo node tools/containers/setup.mjs install` installs one';

/**
 * One line for people: how the agents run workloads, and why. @param chosen - Value of `--runtime`.
 */
export function describeRuntime(containers: ContainerSupport, chosen: string): string {
  if ('runtime' in containers) return `processes, and containers by ${containers.runtime}`;
  if (chosen === 'process') return 'processes; containers are off because of --runtime process';
  return `processes; containers are not used: ${containers.why}; ${SETUP}`;
}
