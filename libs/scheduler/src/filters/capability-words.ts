import { parseHostPath } from '../input/node.js';

/**
 * Words for capabilities that users know under another name, after "no" or "cannot". Every other
 * capability is named as such.
 */
const MISSING: Readonly<Record<string, string>> = {
  'runtime.cri': 'no container runtime',
  'runtime.process': 'no process runtime',
  'limits.cpu': 'cannot limit CPU',
  'limits.memory': 'cannot limit memory',
  'limits.pids': 'cannot limit the number of processes',
  'process.limits.cpu': 'cannot limit the CPU of processes',
  'process.limits.memory': 'cannot limit the memory of processes',
  'process.limits.pids': 'cannot limit the number of processes of a replica',
  'ports.host': 'cannot map host ports',
  'network.host': 'does not share the network of the node',
  'network.egress':
    'cannot limit the destinations of connections (needs root, nft and containerd with runc)',
  'volumes.emptydir': 'cannot mount emptyDir volumes',
  'volumes.memory': 'cannot mount volumes in memory',
  'volumes.hostpath': 'cannot mount host paths',
  'volumes.named': 'cannot mount named volumes',
  'identity.workload':
    'cannot give replicas an identity (capability identity.workload: needs TLS, a container runtime and --deny-processes)',
};

/**
 * Describes in words that a node lacks a capability: `no container runtime`.
 * @param hostPaths - The directories that containers on the node may mount.
 */
export function describeMissingCapability(
  capability: string,
  hostPaths: readonly string[],
): string {
  const path = parseHostPath(capability);
  if (path !== undefined)
    return `does not allow the host path ${path}, only paths in ${hostPaths.join(' or ')} (--allow-host-path of its agent)`;
  return MISSING[capability] ?? `lacks the capability ${capability}`;
}

/** Describes in words that a capability of a node is suspended at the moment. */
export function describeSuspendedCapability(capability: string): string {
  if (capability === 'runtime.cri') return 'the container runtime is unavailable at the moment';
  if (capability === 'runtime.process') return 'the process runtime is unavailable at the moment';
  return `the capability ${capability} is unavailable at the moment`;
}
