import { isIP } from 'node:net';
import type { MessageInitShape } from '@bufbuild/protobuf';
import { CloudlessError } from '@cloudless/base';
import type { ContainerRequest, PortRequest } from '@cloudless/runtime';
import { NamespaceMode, Protocol, type NamespaceOptionSchema, type PodSandboxConfigSchema } from '../../gen/runtime/v1/api_pb.js';

/** A port of the machine that a container takes for itself. */
export interface HostPort {
  readonly port: number;
  readonly protocol: PortRequest['protocol'];
}

const PROTOCOLS = { tcp: Protocol.TCP, udp: Protocol.UDP } as const;

/** @throws kind `invalid`, naming the field. */
export function checkNetwork({ network = {}, ports }: ContainerRequest): void {
  const { hostNetwork = false, hostname, dnsServers = [] } = network;
  if (hostNetwork && hostname !== undefined) {
    throw new CloudlessError('invalid', 'network.hostname: in the network of the machine its name holds');
  }
  if (hostname !== undefined && !/^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/.test(hostname)) {
    throw new CloudlessError('invalid', `network.hostname: ${JSON.stringify(hostname)} is no DNS label`);
  }
  const wrong = dnsServers.find((address) => isIP(address) === 0);
  if (wrong !== undefined) throw new CloudlessError('invalid', `network.dnsServers: ${JSON.stringify(wrong)} is no IP address`);
  const taken = new Set<string>();
  for (const { name, port, protocol, hostPort } of ports) {
    if (hostPort === undefined) continue;
    if (hostNetwork && hostPort !== port) {
      throw new CloudlessError(
        'invalid',
        `ports.${name}: in the network of the machine host port ${hostPort} cannot lead to ${port}`,
      );
    }
    if (taken.has(`${hostPort}/${protocol}`)) {
      throw new CloudlessError('invalid', `ports.${name}: host port ${hostPort}/${protocol} is asked for twice`);
    }
    taken.add(`${hostPort}/${protocol}`);
  }
}

/**
 * Own network for the sandbox, unless that of the machine is asked for. With an init process the container shares the process ids
 * of its sandbox, whose own process is the first and reaps orphans: a sandbox has one container, so nobody else is there.
 */
export function namespacesOf({ network, init = true }: ContainerRequest): MessageInitShape<typeof NamespaceOptionSchema> {
  const isHost = network?.hostNetwork === true;
  return {
    network: isHost ? NamespaceMode.NODE : NamespaceMode.POD,
    pid: init ? NamespaceMode.POD : NamespaceMode.CONTAINER,
    ipc: NamespaceMode.POD,
  };
}

/** The ports of the machine that a container takes: in the machine's network all it declares. */
export function hostPortsOf({ network, ports }: Pick<ContainerRequest, 'network' | 'ports'>): readonly HostPort[] {
  return ports.flatMap(({ port, protocol, hostPort }) => {
    const taken = network?.hostNetwork === true ? port : hostPort;
    return taken === undefined ? [] : [{ port: taken, protocol }];
  });
}

/** What a sandbox is told of its network: its name, who resolves names, and which ports of the machine lead into it. */
export function toSandboxNetwork({
  containerId,
  network = {},
  ports,
}: ContainerRequest): Pick<MessageInitShape<typeof PodSandboxConfigSchema>, 'hostname' | 'dnsConfig' | 'portMappings'> {
  const { hostNetwork = false, hostname = containerId.slice(0, 12), dnsServers = [] } = network;
  const mapped = hostNetwork ? [] : ports;
  return {
    ...(hostNetwork ? {} : { hostname }),
    ...(dnsServers.length === 0 ? {} : { dnsConfig: { servers: [...dnsServers] } }),
    portMappings: mapped.flatMap(({ port, protocol, hostPort }) =>
      hostPort === undefined ? [] : [{ protocol: PROTOCOLS[protocol], containerPort: port, hostPort }],
    ),
  };
}
