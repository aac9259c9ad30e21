import { create } from '@bufbuild/protobuf';
import {
  containsNetwork,
  EgressDestinationSchema,
  findNetworkProblem,
  findServicePatternProblem,
  formatEgressDestination,
  parseIpNetwork,
  Port_Protocol as Protocol,
  type EgressDestination,
  type EgressPort,
  type IpNetwork,
} from '@cloudless/api';
import type { EgressAllowed, EgressAllowedPort, Finding } from '../model.js';
import type { ConfigReader } from './config-reader.js';
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
    const areas = allowed.map((each) => toArea(toDestination(each)));
    const list = areas.map(({ text }) => text).join(', ');
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
        const area = toArea(destination);
        if (areas.some((each) => isWithin(area, each))) continue;
        const field = `spec.network.egress.allowed[${index}]`;
        findings.push({ field, found: area.text, allowed: allowedText });
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
  /** The destination for people. */
  readonly text: string;
  /** The network; undefined for services. */
  readonly network: IpNetwork | undefined;
  /** The services; empty for a network. */
  readonly service: string;
  /** Empty: every port of every protocol. */
  readonly ports: readonly EgressPort[];
}

function toDestination({ cidr, service = '', ports = [] }: EgressAllowed): EgressDestination {
  return create(EgressDestinationSchema, {
    destination:
      cidr === undefined ? { case: 'service', value: service } : { case: 'cidr', value: cidr },
    ports: ports.map(({ protocol = 'TCP', port, endPort = 0 }) => ({
      protocol: Protocol[protocol],
      port,
      endPort,
    })),
  });
}

/** @throws For a destination that is not valid. The evaluation then counts the rule as violated. */
function toArea(message: EgressDestination): Area {
  const { destination, ports } = message;
  const text = formatEgressDestination(message);
  if (destination.case === 'service')
    return { text, network: undefined, service: destination.value, ports };
  const network = parseIpNetwork(destination.value ?? '');
  if (network === undefined) throw new Error(`${text} is not a network`);
  return { text, network, service: '', ports };
}

/** Returns true when `outer` contains every address, port and protocol of `inner`. */
function isWithin(inner: Area, outer: Area): boolean {
  return isPlaceWithin(inner, outer) && arePortsWithin(inner.ports, outer.ports);
}

function isPlaceWithin(inner: Area, outer: Area): boolean {
  if (outer.network !== undefined)
    return inner.network !== undefined && containsNetwork(outer.network, inner.network);
  if (inner.network !== undefined) return false;
  if (outer.service === '*' || outer.service === inner.service) return true;
  return outer.service.endsWith('/*') && inner.service.startsWith(outer.service.slice(0, -1));
}

function arePortsWithin(inner: readonly EgressPort[], outer: readonly EgressPort[]): boolean {
  if (outer.length === 0) return true;
  const isInside = (range: EgressPort) =>
    outer.some(
      (each) =>
        each.protocol === range.protocol &&
        each.port <= range.port &&
        lastOf(range) <= lastOf(each),
    );
  return inner.length > 0 && inner.every(isInside);
}

function lastOf({ port, endPort }: EgressPort): number {
  return Math.max(port, endPort);
}
