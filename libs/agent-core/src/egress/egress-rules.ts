import { Port_Protocol, type Egress, type EgressPort } from '@cloudless/api';
import { CloudlessError } from '@cloudless/base';
import type { EgressPortRange, EgressRule } from '@cloudless/runtime';
import type { ServiceAddress } from '../network/node-network.js';

/**
 * Virtual addresses and ports of services by the pattern of `EgressDestination.service`. The
 * addresses of a pattern without an entry are not known.
 */
export type ServiceAddresses = ReadonlyMap<string, readonly ServiceAddress[]>;

/** Ports at which the DNS server of the node answers. */
const DNS_PORTS: readonly EgressPortRange[] = [
  { protocol: 'udp', first: 53, last: 53 },
  { protocol: 'tcp', first: 53, last: 53 },
];

/** Returns the patterns of the services among the destinations, each once. */
export function listServicePatterns(egress: Egress | undefined): readonly string[] {
  const patterns = (egress?.allowed ?? []).flatMap(({ destination }) =>
    destination.case === 'service' ? [destination.value] : [],
  );
  return [...new Set(patterns)];
}

/**
 * Converts the destinations of a spec to rules of the runtime. Services whose addresses are not
 * known are not reachable. A service has only its own ports: the node itself answers at the other
 * ports of a virtual address.
 * @param dnsServer - Address of the DNS server that the container uses, if that is the node's.
 * @throws kind `invalid` for a destination or protocol that this agent version does not support.
 */
export function toEgressRules(
  { allowed }: Egress,
  addresses: ServiceAddresses,
  dnsServer?: string,
): readonly EgressRule[] {
  const rules = allowed.flatMap(({ destination, ports }, index): readonly EgressRule[] => {
    const field = `network.egress.allowed[${index}]`;
    const ranges = ports.map((port) => toPortRange(port, field));
    switch (destination.case) {
      case 'cidr': {
        const limits = ranges.length === 0 ? {} : { ports: ranges };
        return [{ network: toNetwork(destination.value), ...limits }];
      }
      case 'service':
        return (addresses.get(destination.value) ?? []).flatMap((service) =>
          toServiceRules(service, ranges),
        );
      default:
        throw new CloudlessError(
          'invalid',
          `${field} has no destination that this agent version supports`,
        );
    }
  });
  return dnsServer === undefined
    ? rules
    : [...rules, { network: toNetwork(dnsServer), ports: DNS_PORTS }];
}

/** @param ranges - Ports of the destination. Empty: all ports of the service. */
function toServiceRules(
  { address, ports }: ServiceAddress,
  ranges: readonly EgressPortRange[],
): readonly EgressRule[] {
  const allowed = ports.filter(
    ({ protocol, port }) =>
      ranges.length === 0 ||
      ranges.some(
        (range) => range.protocol === protocol && range.first <= port && port <= range.last,
      ),
  );
  if (allowed.length === 0) return [];
  const single = allowed.map(({ protocol, port }) => ({ protocol, first: port, last: port }));
  return [{ network: toNetwork(address), ports: single }];
}

function toPortRange({ protocol, port, endPort }: EgressPort, field: string): EgressPortRange {
  if (protocol !== Port_Protocol.TCP && protocol !== Port_Protocol.UDP)
    throw new CloudlessError(
      'invalid',
      `${field}.ports has the protocol ${String(protocol)}, which this agent version does not support`,
    );
  return {
    protocol: protocol === Port_Protocol.UDP ? 'udp' : 'tcp',
    first: port,
    last: endPort === 0 ? port : endPort,
  };
}

/** Returns a network in CIDR notation; an address is a network of one address. */
function toNetwork(networkOrAddress: string): string {
  if (networkOrAddress.includes('/')) return networkOrAddress;
  return `${networkOrAddress}/${networkOrAddress.includes(':') ? 128 : 32}`;
}
