import { isIP } from 'node:net';
import type { MessageInitShape } from '@bufbuild/protobuf';
import { CloudlessError } from '@cloudless/base';
import type { ContainerRequest, ExtraHost, PortRequest } from '@cloudless/runtime';
import {
  NamespaceMode,
  Protocol,
  type NamespaceOptionSchema,
  type PodSandboxConfigSchema,
} from '../../gen/runtime/v1/api_pb.js';
import { normalizePath } from '../../volumes/mount-paths.js';
import { HOSTS_PATH } from './hosts-text.js';

/** A host port of a container. */
export interface ContainerHostPort {
  readonly port: number;
  readonly protocol: PortRequest['protocol'];
}

const PROTOCOLS = { tcp: Protocol.TCP, udp: Protocol.UDP } as const;

/**
 * A host name: labels of letters, digits, `-` and `_`, separated by dots, 253 characters at most.
 */
const HOST_NAME =
  /^(?=.{1,253}$)[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?)*$/;

/**
 * Validates network settings and ports.
 * @throws kind `invalid`, naming the field.
 */
export function checkNetwork(request: ContainerRequest): void {
  const { network = {}, ports } = request;
  const { hostNetwork = false, hostname, dnsServers = [] } = network;
  if (hostNetwork && hostname !== undefined) {
    throw new CloudlessError(
      'invalid',
      'network.hostname: cannot be set in the network of the machine, whose host name applies',
    );
  }
  if (hostname !== undefined && !/^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/.test(hostname)) {
    throw new CloudlessError(
      'invalid',
      `network.hostname: ${JSON.stringify(hostname)} is not a DNS label`,
    );
  }
  const wrong = dnsServers.find((address) => isIP(address) === 0);
  if (wrong !== undefined)
    throw new CloudlessError(
      'invalid',
      `network.dnsServers: ${JSON.stringify(wrong)} is not an IP address`,
    );
  checkExtraHosts(network.extraHosts ?? [], hasHostsFileVolume(request));
  const hostPorts = new Set<string>();
  for (const { name, port, protocol, hostPort } of ports) {
    if (hostPort === undefined) continue;
    if (hostNetwork && hostPort !== port) {
      throw new CloudlessError(
        'invalid',
        `ports.${name}: in the network of the machine host port ${hostPort} cannot be forwarded to port ${port}`,
      );
    }
    if (hostPorts.has(`${hostPort}/${protocol}`)) {
      throw new CloudlessError(
        'invalid',
        `ports.${name}: host port ${hostPort}/${protocol} is requested twice`,
      );
    }
    hostPorts.add(`${hostPort}/${protocol}`);
  }
}

/**
 * Validates extra hosts strictly, because they are written to the hosts file unchanged: a line feed
 * in a name would begin another line.
 * @param isReplaced - True when a volume replaces the hosts file.
 */
function checkExtraHosts(extraHosts: readonly ExtraHost[], isReplaced: boolean): void {
  const createError = (message: string): CloudlessError =>
    new CloudlessError('invalid', `network.extraHosts: ${message}`);
  if (extraHosts.length > 0 && isReplaced)
    throw createError(`a volume is mounted at ${HOSTS_PATH}`);
  for (const { ip, hostnames } of extraHosts) {
    if (isIP(ip) === 0) throw createError(`${JSON.stringify(ip)} is not an IP address`);
    if (hostnames.length === 0) throw createError(`${ip} needs a name`);
    const name = hostnames.find((each) => !HOST_NAME.test(each));
    if (name !== undefined) throw createError(`${JSON.stringify(name)} is not a host name`);
  }
}

/**
 * Returns true when a volume is mounted at exactly `/etc/hosts`, so that it replaces the hosts
 * file.
 */
export function hasHostsFileVolume({ volumes = [] }: ContainerRequest): boolean {
  return volumes.some(({ mountPath }) => normalizePath(mountPath) === HOSTS_PATH);
}

/** Characters of the id of a container that are its host name. */
const HOSTNAME_LENGTH = 12;

/**
 * Returns the host name of a container in a network of its own. Default: the first 12 characters in a
 * row of the id that contain a letter, nearly always the first 12. The functions of the C library
 * take a name of digits alone for a number of an address, and do not look the name up.
 * @see POSIX, inet_addr: an address of one part
 */
export function resolveHostname({
  containerId,
  network,
}: Pick<ContainerRequest, 'containerId' | 'network'>): string {
  if (network?.hostname !== undefined) return network.hostname;
  const firstLetter = Math.max(0, containerId.search(/[a-f]/));
  const start = Math.max(0, firstLetter + 1 - HOSTNAME_LENGTH);
  return containerId.slice(start, start + HOSTNAME_LENGTH);
}

/**
 * Selects the namespaces of a sandbox and its container. The sandbox has a network of its own
 * unless the request sets `hostNetwork`. With `init`, the default, the container shares the pid
 * namespace of its sandbox, whose first process reaps orphans. The sandbox contains no other
 * container.
 */
export function toNamespaces({
  network,
  init = true,
}: ContainerRequest): MessageInitShape<typeof NamespaceOptionSchema> {
  const isHost = network?.hostNetwork === true;
  return {
    network: isHost ? NamespaceMode.NODE : NamespaceMode.POD,
    pid: init ? NamespaceMode.POD : NamespaceMode.CONTAINER,
    ipc: NamespaceMode.POD,
  };
}

/**
 * Lists the host ports that a container uses: the `hostPort` of its ports, or every declared port
 * in the network of the machine.
 */
export function listHostPorts({
  network,
  ports,
}: Pick<ContainerRequest, 'network' | 'ports'>): readonly ContainerHostPort[] {
  return ports.flatMap(({ port, protocol, hostPort }) => {
    const usedPort = network?.hostNetwork === true ? port : hostPort;
    return usedPort === undefined ? [] : [{ port: usedPort, protocol }];
  });
}

/** Builds the network configuration of a sandbox: host name, DNS servers and port mappings. */
export function toSandboxNetwork(
  request: ContainerRequest,
): Pick<
  MessageInitShape<typeof PodSandboxConfigSchema>,
  'hostname' | 'dnsConfig' | 'portMappings'
> {
  const { network = {}, ports } = request;
  const { hostNetwork = false, dnsServers = [], dnsSearches = [], dnsOptions = [] } = network;
  const mapped = hostNetwork ? [] : ports;
  return {
    ...(hostNetwork ? {} : { hostname: resolveHostname(request) }),
    ...(dnsServers.length === 0
      ? {}
      : {
          dnsConfig: {
            servers: [...dnsServers],
            searches: [...dnsSearches],
            options: [...dnsOptions],
          },
        }),
    portMappings: mapped.flatMap(({ port, protocol, hostPort }) =>
      hostPort === undefined
        ? []
        : [{ protocol: PROTOCOLS[protocol], containerPort: port, hostPort }],
    ),
  };
}
