import {
  containsNetwork,
  findNetworkProblem,
  findServicePatternProblem,
  parseIpNetwork,
  Port_Protocol as Protocol,
  type EgressDestination,
  type IpNetwork,
} from '@cloudless/api';
import type { EgressAllowed, EgressAllowedPort, Finding } from '../model.js';
import { show, type ConfigReader } from './config-reader.js';
import { SATISFIED, type RuleDefinition } from './rule-definition.js';

/** Bounds of the messages `EgressDestinationRule` and `EgressDestination` of the API. */
const MAX_DESTINATIONS = 64;
const MAX_PORTS = 16;
const MAX_PORT = 65_535;

/** Destinations of connections. */
export const egressDestination: RuleDefinition<'EGRESS_DESTINATION'> = {
  needsContainer: true,
  read: (reader) => ({
    allowed: [],
    ...reader.objects('allowed', readDestination, {
      required: true,
      allowEmpty: true,
      max: MAX_DESTINATIONS,
      expected: 'destinations',
    }),
  }),
  create: ({ allowed }) => {
    const areas = allowed.map(toArea);
    const list = areas.map(describeArea).join(', ');
    const isNone = areas.length === 0;
    const notSet: readonly Finding[] = [
      {
        field: 'spec.network.egress',
        found: 'not set',
        allowed: isNone ? '{}, which is no destination' : `a list of destinations within ${list}`,
      },
    ];
    const allowedText = isNone ? 'no destination' : `a destination within ${list}`;
    return ({ spec: { network } }) => {
      if (network?.egress === undefined) return notSet;
      const findings: Finding[] = [];
      for (const [index, destination] of network.egress.allowed.entries()) {
        const area = fromDestination(destination);
        if (areas.some((each) => isWithin(area, each))) continue;
        const field = `spec.network.egress.allowed[${index}]`;
        findings.push({ field, found: describeArea(area), allowed: allowedText });
      }
      return findings.length === 0 ? SATISFIED : findings;
    };
  },
};

function readDestination(reader: ConfigReader): EgressAllowed {
  const destination = {
    ...reader.text('cidr', { findProblem: findNetworkProblem }),
    ...reader.text('service', { findProblem: findServicePatternProblem }),
    ...reader.objects('ports', readPort, { max: MAX_PORTS, expected: 'ports' }),
  };
  reader.requireExactlyOne('cidr', 'service');
  return destination;
}

function readPort(reader: ConfigReader): EgressAllowedPort {
  const { port = 1 } = reader.amount('port', { required: true, max: MAX_PORT });
  return {
    ...reader.choice('protocol', ['TCP', 'UDP'] as const),
    port,
    ...reader.amount('endPort', { min: port, max: MAX_PORT }),
  };
}

/** A destination of a workload or of a configuration, ready for comparisons. */
interface Area {
  /** The network; undefined for services. */
  readonly network: IpNetwork | undefined;
  /** The network or the pattern of services, as written. */
  readonly text: string;
  /** Empty: every port of every protocol. */
  readonly ranges: readonly PortRange[];
}

interface PortRange {
  readonly protocol: 'tcp' | 'udp';
  readonly first: number;
  readonly last: number;
}

function toArea({ cidr, service = '', ports = [] }: EgressAllowed): Area {
  return {
    network: cidr === undefined ? undefined : requireNetwork(cidr),
    text: cidr ?? service,
    ranges: ports.map(({ protocol = 'TCP', port, endPort = port }) => ({
      protocol: protocol === 'UDP' ? 'udp' : 'tcp',
      first: port,
      last: endPort,
    })),
  };
}

/** @throws An error for a destination that validation refuses, which violates the rule. */
function fromDestination({ destination, ports }: EgressDestination): Area {
  if (destination.case === undefined) throw new Error('a destination has no network or service');
  return {
    network: destination.case === 'cidr' ? requireNetwork(destination.value) : undefined,
    text: destination.value,
    ranges: ports.map(({ protocol, port, endPort }) => ({
      protocol: protocol === Protocol.UDP ? 'udp' : 'tcp',
      first: port,
      last: endPort === 0 ? port : endPort,
    })),
  };
}

function requireNetwork(cidr: string): IpNetwork {
  const network = parseIpNetwork(cidr);
  if (network === undefined) throw new Error(`${show(cidr)} is not a network`);
  return network;
}

/** Returns true when `outer` contains every address, port and protocol of `inner`. */
function isWithin(inner: Area, outer: Area): boolean {
  return isPlaceWithin(inner, outer) && arePortsWithin(inner.ranges, outer.ranges);
}

function isPlaceWithin(inner: Area, outer: Area): boolean {
  if (outer.network !== undefined)
    return inner.network !== undefined && containsNetwork(outer.network, inner.network);
  if (inner.network !== undefined) return false;
  if (outer.text === '*' || outer.text === inner.text) return true;
  return outer.text.endsWith('/*') && inner.text.startsWith(outer.text.slice(0, -1));
}

function arePortsWithin(inner: readonly PortRange[], outer: readonly PortRange[]): boolean {
  if (outer.length === 0) return true;
  const isInside = ({ protocol, first, last }: PortRange) =>
    outer.some(
      (range) => range.protocol === protocol && range.first <= first && last <= range.last,
    );
  return inner.length > 0 && inner.every(isInside);
}

/** Formats a destination for people: `10.0.0.0/8 port 5432/tcp`, `service shop/*`. */
function describeArea({ network, text, ranges }: Area): string {
  const place = network === undefined ? `service ${text}` : text;
  if (ranges.length === 0) return place;
  const ports = ranges.map(({ protocol, first, last }) =>
    first === last ? `${first}/${protocol}` : `${first}-${last}/${protocol}`,
  );
  const noun = ranges.length === 1 && ranges[0]?.first === ranges[0]?.last ? 'port' : 'ports';
  return `${place} ${noun} ${ports.join(' and ')}`;
}
