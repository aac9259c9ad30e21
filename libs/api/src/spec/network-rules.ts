import { isIP } from 'node:net';
import type { Violation } from '@cloudless/base';
import { Port_Protocol, type ExtraHost, type Volume, type WorkloadSpec } from '../gen.js';
import { validateEgress } from './egress-rules.js';

/**
 * Validates the network settings and host ports, beyond the rules of the proto. The paths of the
 * violations start with `spec`.
 */
export function* validateNetwork(spec: WorkloadSpec): Generator<Violation> {
  const { network } = spec;
  yield* validateHostPorts(spec);
  if (network === undefined) return;
  if (network.hostNetwork && network.hostname !== '') {
    const message = 'with host_network the hostname is that of the node; remove one of them';
    yield { field: 'spec.network.hostname', message };
  }
  for (const [index, address] of network.dnsServers.entries()) {
    if (isIP(address) !== 0) continue;
    yield {
      field: `spec.network.dns_servers[${index}]`,
      message: `${JSON.stringify(address)} is not an IP address`,
    };
  }
  yield* validateExtraHosts(network.extraHosts, spec.volumes);
  yield* validateEgress(spec);
}

function* validateExtraHosts(
  extraHosts: readonly ExtraHost[],
  volumes: readonly Volume[],
): Generator<Violation> {
  const field = 'spec.network.extra_hosts';
  for (const [index, { ip }] of extraHosts.entries()) {
    if (isIP(ip) === 0)
      yield {
        field: `${field}[${index}].ip`,
        message: `${JSON.stringify(ip)} is not an IP address`,
      };
  }
  const hostsVolume =
    extraHosts.length === 0
      ? undefined
      : volumes.find(({ mountPath }) => mountPath === '/etc/hosts');
  if (hostsVolume === undefined) return;
  const problem = 'is mounted at /etc/hosts and replaces the file with these entries';
  yield { field, message: `volume "${hostsVolume.name}" ${problem}; remove one of them` };
}

function* validateHostPorts({ ports, network }: WorkloadSpec): Generator<Violation> {
  const usedPorts = new Set<string>();
  for (const [index, { hostPort, containerPort, protocol }] of ports.entries()) {
    if (hostPort === 0) continue;
    const field = `spec.ports[${index}].host_port`;
    const number = `${hostPort}/${Port_Protocol[protocol]?.toLowerCase() ?? protocol}`;
    if (usedPorts.has(number)) yield { field, message: `${number} is used twice` };
    usedPorts.add(number);
    if (network?.hostNetwork === true && hostPort !== containerPort) {
      const message = `${hostPort} is not container_port ${containerPort}: with host_network both are the same port; remove host_port`;
      yield { field, message };
    }
  }
}
