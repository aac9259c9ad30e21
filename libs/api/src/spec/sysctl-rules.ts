import type { Violation } from '@cloudless/base';
import type { WorkloadSpec } from '../gen.js';

/**
 * Kernel parameters of the IPC namespace, and below of the network namespace, of a container.
 * @see namespaces(7)
 */
const IPC_SYSCTL = /^(kernel\.(msg[a-z_]*|sem|shm[a-z_]*)|fs\.mqueue\.[a-z0-9_]+)$/;
const NETWORK_SYSCTL = /^net(\.[A-Za-z0-9_-]+)+$/;

/**
 * Validates that kernel parameters affect only the container. The paths of the violations start
 * with `spec`.
 */
export function* validateSysctls({ sysctls, network }: WorkloadSpec): Generator<Violation> {
  for (const name of Object.keys(sysctls)) {
    const field = `spec.sysctls[${JSON.stringify(name)}]`;
    const isNetwork = NETWORK_SYSCTL.test(name);
    if (!isNetwork && !IPC_SYSCTL.test(name)) {
      const message =
        'affects the whole node; a container can set kernel.msg…, kernel.sem, kernel.shm…, fs.mqueue.… and net.…';
      yield { field, message };
    }
    if (isNetwork && network?.hostNetwork === true) {
      yield { field, message: 'with host_network it affects the node; remove one of them' };
    }
  }
}
