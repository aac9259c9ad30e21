import { CloudlessError } from '@cloudless/base';
import type { ContainerRequest } from '@cloudless/runtime';

/**
 * Kernel parameter with the first port on which any user may listen. A container in a network of
 * its own gets 0 by default, as with Docker.
 */
const FIRST_OPEN_PORT = 'net.ipv4.ip_unprivileged_port_start';

/**
 * Kernel parameters that have a value of their own in each IPC or network namespace.
 * @see namespaces(7), sysctl(8)
 */
const IPC_SYSCTL = /^(kernel\.(msg[a-z_]*|sem|shm[a-z_]*)|fs\.mqueue\.[a-z0-9_]+)$/;
const NETWORK_SYSCTL = /^net(\.[A-Za-z0-9_-]+)+$/;

/**
 * Kernel parameters that affect neither other containers nor the resources of the machine. Requests
 * may set them without a permission of the operator.
 * @see Kubernetes, "Using sysctls in a Kubernetes Cluster", the safe set
 */
export const SAFE_SYSCTLS: readonly string[] = [
  'kernel.shm_rmid_forced',
  'net.ipv4.ip_local_port_range',
  'net.ipv4.ip_local_reserved_ports',
  FIRST_OPEN_PORT,
  'net.ipv4.ping_group_range',
  'net.ipv4.tcp_fin_timeout',
  'net.ipv4.tcp_keepalive_intvl',
  'net.ipv4.tcp_keepalive_probes',
  'net.ipv4.tcp_keepalive_time',
  'net.ipv4.tcp_rmem',
  'net.ipv4.tcp_syncookies',
  'net.ipv4.tcp_wmem',
];

/**
 * Validates the kernel parameters of a request.
 * @throws kind `invalid`, naming the parameter, for a parameter that would change the whole
 *   machine.
 */
export function checkSysctls({
  sysctls = {},
  network,
}: Pick<ContainerRequest, 'sysctls' | 'network'>): void {
  for (const name of Object.keys(sysctls)) {
    const isNetwork = NETWORK_SYSCTL.test(name);
    if (!isNetwork && !IPC_SYSCTL.test(name))
      throw createSysctlError(name, 'applies to the whole machine, not to one container');
    if (isNetwork && network?.hostNetwork === true)
      throw createSysctlError(
        name,
        'applies to the network of the machine, which the container shares',
      );
  }
}

/**
 * Returns the kernel parameters of a sandbox: the default of Cloudless, then those of the request.
 */
export function toSysctls({
  network,
  sysctls = {},
}: Pick<ContainerRequest, 'sysctls' | 'network'>): Record<string, string> {
  return { ...(network?.hostNetwork === true ? {} : { [FIRST_OPEN_PORT]: '0' }), ...sysctls };
}

function createSysctlError(name: string, message: string): CloudlessError {
  return new CloudlessError('invalid', `sysctls.${name}: ${message}`);
}
