import { EVADING_CAPABILITIES } from '@cloudless/api';
import { CloudlessError } from '@cloudless/base';
import type { ContainerRequest } from '@cloudless/runtime';
import { checkEgressRules } from '../../egress/filter-text.js';

/**
 * Validates the limit of destinations, and refuses settings that evade the limit, because a policy
 * may rely on it.
 * @throws kind `invalid`, naming the field.
 */
export function checkEgress({ network = {}, security = {} }: ContainerRequest): void {
  if (network.egress === undefined) return;
  const { privileged, runtimeClass, capabilitiesAdd = [], seccomp } = security;
  const evading = capabilitiesAdd.find((name) => EVADING_CAPABILITIES.has(name));
  if (network.hostNetwork === true)
    throw createEgressError('cannot limit the network of the machine; remove network.hostNetwork');
  if (privileged === true)
    throw createEgressError('a privileged container evades the limit; remove security.privileged');
  if (runtimeClass !== undefined)
    throw createEgressError(
      'another runtime may have a network that evades the limit; remove security.runtimeClass',
    );
  if (seccomp?.kind === 'unconfined')
    throw createEgressError(
      'without a seccomp profile a container can use sockets that evade the limit; remove security.seccomp',
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
