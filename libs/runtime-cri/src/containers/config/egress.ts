import { CloudlessError } from '@cloudless/base';
import type { ContainerRequest } from '@cloudless/runtime';
import { checkEgressRules } from '../../egress/filter-text.js';

/**
 * Capabilities with which a container could remove the packet filter of its network, send packets
 * past the filter, or take over a process that can.
 * @see capabilities(7); packet(7): packets of raw sockets pass no filter for output
 */
const EVADING_CAPABILITIES = [
  'ALL',
  'BPF',
  'DAC_READ_SEARCH',
  'MKNOD',
  'NET_ADMIN',
  'NET_RAW',
  'PERFMON',
  'SYS_ADMIN',
  'SYS_BOOT',
  'SYS_MODULE',
  'SYS_PTRACE',
  'SYS_RAWIO',
];

/**
 * Validates the limit of destinations, and refuses settings that evade the limit, because a policy
 * may rely on it.
 * @throws kind `invalid`, naming the field.
 */
export function checkEgress({ network = {}, security = {} }: ContainerRequest): void {
  if (network.egress === undefined) return;
  const { privileged, runtimeClass, capabilitiesAdd = [] } = security;
  const evading = capabilitiesAdd.find((name) => EVADING_CAPABILITIES.includes(name));
  if (network.hostNetwork === true)
    throw createEgressError('cannot limit the network of the machine; remove network.hostNetwork');
  if (privileged === true)
    throw createEgressError('a privileged container evades the limit; remove security.privileged');
  if (runtimeClass !== undefined)
    throw createEgressError(
      'another runtime may have a network that evades the limit; remove security.runtimeClass',
    );
  if (evading !== undefined)
    throw createEgressError(
      `a container with ${evading} evades the limit; remove it from security.capabilitiesAdd`,
    );
  checkEgressRules(network.egress);
}

function createEgressError(message: string): CloudlessError {
  return new CloudlessError('invalid', `network.egress: ${message}`);
}
