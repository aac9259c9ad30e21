import type { Violation } from '@cloudless/base';
import {
  Port_Protocol as Protocol,
  type EgressDestination,
  type EgressPort,
  type WorkloadSpec,
} from '../gen.js';
import {
  containsAddress,
  findNetworkProblem,
  formatIpNetwork,
  parseIpAddress,
  parseIpNetwork,
  type IpAddress,
} from '../network/ip-network.js';
import { ALL_CAPABILITIES, normalizeCapability } from './linux-capabilities.js';

/** Capability of nodes that limit the destinations of connections of containers. */
export const EGRESS_CAPABILITY = 'network.egress';

/** A DNS label, also one of only digits. */
const LABEL = '[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?';
const SERVICE_PATTERN = new RegExp(`^(?:\\*|${LABEL}/(?:\\*|${LABEL}))$`);
const SERVICE_HOST = new RegExp(`^(${LABEL})\\.(${LABEL})(?:\\.[a-z0-9.-]*)?$`);
const DNS_PORT = 53;
/** Networks whose packets never leave a container, and so are not limited. */
const LOOPBACK = ['127.0.0.0/8', '::1/128'].flatMap((text) => parseIpNetwork(text) ?? []);

/**
 * Linux capabilities with which a container changes the packet filter, sends packets past the
 * filter, or takes control of the kernel or of processes outside of the container.
 * @see capabilities(7); packet(7): packets of raw sockets pass no filter for output
 */
export const EVADING_CAPABILITIES: ReadonlySet<string> = new Set([
  ALL_CAPABILITIES,
  ...['NET_ADMIN', 'NET_RAW', 'SYS_ADMIN', 'SYS_MODULE', 'SYS_RAWIO', 'SYS_PTRACE'],
  ...['BPF', 'PERFMON', 'DAC_READ_SEARCH', 'MKNOD', 'SYS_BOOT'],
]);

/** Validates the limit of the destinations of connections, and the settings that evade a limit. */
export function* validateEgress(spec: WorkloadSpec): Generator<Violation> {
  const allowed = spec.network?.egress?.allowed;
  if (allowed === undefined) return;
  for (const [index, destination] of allowed.entries())
    yield* validateDestination(destination, `spec.network.egress.allowed[${index}]`);
  yield* validateEvasion(spec);
  yield* validateDnsServers(spec.network?.dnsServers ?? [], allowed);
}

function* validateDestination(
  { destination, ports }: EgressDestination,
  path: string,
): Generator<Violation> {
  const { case: kind, value } = destination;
  if (kind === undefined) {
    yield {
      field: path,
      message: 'needs a destination: set cidr, such as 10.0.0.0/8, or service, such as shop/web',
    };
  } else {
    const problem = kind === 'cidr' ? findNetworkProblem(value) : findServicePatternProblem(value);
    if (problem !== undefined) yield { field: `${path}.${kind}`, message: problem };
  }
  for (const [index, { port, endPort }] of ports.entries()) {
    if (endPort === 0 || endPort >= port) continue;
    const message = `${endPort} is below port ${port}; end_port is the last port of the range`;
    yield { field: `${path}.ports[${index}].end_port`, message };
  }
}

/**
 * Explains why a text names no services: `<namespace>/<name>`, `<namespace>/*` and `*` do.
 * @returns Undefined for a valid text.
 */
export function findServicePatternProblem(text: string): string | undefined {
  if (SERVICE_PATTERN.test(text)) return undefined;
  const shown = JSON.stringify(text);
  const [, name, namespace] = SERVICE_HOST.exec(text) ?? [];
  if (name !== undefined) return `${shown} is a host name; write ${namespace}/${name}`;
  if (new RegExp(`^${LABEL}$`).test(text))
    return `${shown} has no namespace; write <namespace>/${text}, such as shop/${text}`;
  return `${shown} is not a service; use <namespace>/<name>, <namespace>/*, or * for all services`;
}

/** Rejects settings with which a container is not held to its destinations. */
function* validateEvasion({ network, security }: WorkloadSpec): Generator<Violation> {
  if (network?.hostNetwork === true) {
    const message =
      'the network of the node has no limit of destinations; remove host_network or egress';
    yield { field: 'spec.network.host_network', message };
  }
  if (security === undefined) return;
  if (security.privileged) {
    const message =
      'a privileged container can change the packet filter of network.egress; remove privileged or egress';
    yield { field: 'spec.security.privileged', message };
  }
  if (security.runtimeClass !== '') {
    const message =
      'sandboxed runtimes send packets past the packet filter of network.egress; remove runtime_class or egress';
    yield { field: 'spec.security.runtime_class', message };
  }
  if (security.seccompProfile === 'Unconfined') {
    const message =
      'without a seccomp profile a container can use sockets that the packet filter of network.egress does not see, such as AF_VSOCK; remove seccomp_profile or egress';
    yield { field: 'spec.security.seccomp_profile', message };
  }
  for (const [index, text] of security.capabilitiesAdd.entries()) {
    const name = normalizeCapability(text);
    if (name === undefined || !EVADING_CAPABILITIES.has(name)) continue;
    const message = `${name} gives control over the network or the kernel, and so evades network.egress; remove ${name} or egress`;
    yield { field: `spec.security.capabilities_add[${index}]`, message };
  }
}

/** Rejects DNS servers that the container could not ask. */
function* validateDnsServers(
  dnsServers: readonly string[],
  allowed: readonly EgressDestination[],
): Generator<Violation> {
  for (const [index, text] of dnsServers.entries()) {
    const address = parseIpAddress(text);
    if (address === undefined || LOOPBACK.some((each) => containsAddress(each, address))) continue;
    if (allowed.some((each) => allowsDns(each, address))) continue;
    const prefixLength = address.family === 4 ? 32 : 128;
    const cidr = formatIpNetwork({ ...address, prefixLength });
    const destination = `{ cidr: "${cidr}", ports: [{ protocol: UDP, port: ${DNS_PORT} }, { port: ${DNS_PORT} }] }`;
    yield {
      field: `spec.network.dns_servers[${index}]`,
      message: `egress does not allow this server; add ${destination} to spec.network.egress.allowed, or remove the server`,
    };
  }
}

function allowsDns({ destination, ports }: EgressDestination, address: IpAddress): boolean {
  if (destination.case !== 'cidr') return false;
  const network = parseIpNetwork(destination.value);
  const isInNetwork = network !== undefined && containsAddress(network, address);
  return isInNetwork && (ports.length === 0 || ports.some(includesDns));
}

function includesDns({ protocol, port, endPort }: EgressPort): boolean {
  return protocol === Protocol.UDP && port <= DNS_PORT && Math.max(port, endPort) >= DNS_PORT;
}

/** Formats a destination for people: `10.0.0.0/8 port 5432/tcp`, `service shop/*`. */
export function formatEgressDestination({ destination, ports }: EgressDestination): string {
  const place = destination.case === 'service' ? `service ${destination.value}` : destination.value;
  const texts = ports.map(({ protocol, port, endPort }) => {
    const range = endPort > port ? `${port}-${endPort}` : String(port);
    return `${range}/${protocol === Protocol.UDP ? 'udp' : 'tcp'}`;
  });
  const isOne = texts.length === 1 && texts[0]?.includes('-') === false;
  const list = texts.length === 0 ? '' : ` ${isOne ? 'port' : 'ports'} ${texts.join(' and ')}`;
  return `${place ?? 'nothing'}${list}`;
}
