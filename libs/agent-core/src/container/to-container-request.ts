import { definedFields, CloudlessError, type ContainerId } from '@cloudless/base';
import {
  DEFAULTS,
  FILES_CAPABILITY,
  Port_Protocol,
  requestsIdentity,
  resolvePortName,
  WORKLOAD_IDENTITY_CAPABILITY,
  WORKLOAD_IDENTITY_PATH,
  WORKLOAD_IDENTITY_VOLUME,
  type Order,
  type Resources,
  type StartOrder,
  type WorkloadSpec,
} from '@cloudless/api';
import type {
  ContainerLease,
  ContainerRequest,
  PortRequest,
  VolumeRequest,
} from '@cloudless/runtime';
import { toEgressRules, type ServiceAddresses } from '../egress/egress-rules.js';
import { usesFiles } from '../files/file-refs.js';
import type { FilesAccess } from '../files/files-access.js';
import type { ServiceAccess } from '../network/node-network.js';
import { createDnsSettings, createServiceVariables } from '../network/service-discovery.js';
import { toContainerLabels } from './container-labels.js';
import type { IdentityDirectory } from './identity-directory.js';
import { toIsolation, type Isolation } from './to-isolation.js';

/** Container and node that a request is for. */
export interface ContainerIdentity {
  readonly clusterId: string;
  readonly nodeId: string;
  readonly containerId: ContainerId;
  /** Restarts in place and failed starts before this container; default 0. */
  readonly restarts?: number;
  /** How many of `restarts` are failed starts; default 0. */
  readonly failedStarts?: number;
  /** Lease of the container; set for an exclusive replica. */
  readonly lease?: ContainerLease;
  /** DNS server and variables for services. Absent: the node provides neither. */
  readonly services?: ServiceAccess;
  /** Addresses of the services to which the container may connect. Absent: none is known. */
  readonly serviceAddresses?: ServiceAddresses;
  /** Directory with the certificate and key of the replica; required when the spec has `identity`. */
  readonly identity?: IdentityDirectory;
  /** Secrets and configs of the replica; required when the spec uses some. */
  readonly files?: FilesAccess;
}

/**
 * Converts a start order to a request to the runtime. Contains every field of the spec that
 * concerns a container; the scheduler (placement, priority), the rollout and {@link
 * toReplicaTarget} read the others.
 * @throws kind `invalid` when the order is not a start order or has no spec.
 */
export function toContainerRequest(order: Order, container: ContainerIdentity): ContainerRequest {
  const { start, spec } = requireStart(order);
  const identity = requestsIdentity(spec) ? requireIdentity(container) : undefined;
  const files = usesFiles(spec) ? requireFiles(container) : undefined;
  const labels = toContainerLabels(
    {
      clusterId: container.clusterId,
      nodeId: container.nodeId,
      replicaId: order.replicaId,
      workloadUid: order.workloadUid,
      namespace: start.namespace,
      workload: start.workload,
      version: start.version,
      slot: start.slot,
      orderRevision: order.orderRevision,
      restarts: container.restarts ?? 0,
      failedStarts: container.failedStarts ?? 0,
    },
    spec,
  );
  return {
    containerId: container.containerId,
    labels,
    ...(spec.image === '' ? {} : { image: spec.image }),
    command: spec.command,
    args: spec.args,
    env: {
      ...(container.services === undefined || hasOwnNetwork(spec)
        ? {}
        : createServiceVariables(container.services.services)),
      ...spec.env,
      ...createReplicaVariables(order, start, container),
      ...(identity === undefined ? {} : { CLOUDLESS_IDENTITY_DIR: WORKLOAD_IDENTITY_PATH }),
      ...files?.env,
    },
    ...(Object.keys(files?.secretEnv ?? {}).length === 0
      ? {}
      : definedFields({ secretEnv: files?.secretEnv })),
    ...definedFields({ imageCredentials: files?.imageCredentials }),
    ...(spec.workingDir === '' ? {} : { workingDir: spec.workingDir }),
    ports: spec.ports.map((port) => toPortRequest(port, spec)),
    limits: toLimits(spec.resources),
    requests: toRequests(spec.resources),
    group: order.replicaId,
    ...withEgress(
      withServices(
        withFiles(withIdentity(toIsolation(spec, start), identity), files),
        order,
        container.services,
      ),
      spec,
      container,
    ),
    ...definedFields({ lease: container.lease }),
  };
}

function requireIdentity({ identity }: ContainerIdentity): IdentityDirectory {
  if (identity !== undefined) return identity;
  throw new CloudlessError(
    'unimplemented',
    `spec.identity: this node lacks the capability ${WORKLOAD_IDENTITY_CAPABILITY}`,
  );
}

function requireFiles({ files }: ContainerIdentity): FilesAccess {
  if (files !== undefined) return files;
  throw new CloudlessError(
    'unimplemented',
    `spec.secrets: this node lacks the capability ${FILES_CAPABILITY}`,
  );
}

/** Adds a read-only mount for each secret and config with files. */
function withFiles(isolation: Isolation, files: FilesAccess | undefined): Isolation {
  if (files?.directory === undefined || files.mounts.length === 0) return isolation;
  const { path: mountPoint, inMemory } = files.directory;
  const mounts = files.mounts.map(({ ref, path }, index): VolumeRequest => ({
    name: `cloudless-${ref.field}-${index}`,
    mountPath: ref.mountPath,
    readOnly: true,
    source: { kind: 'prepared', path, inMemory, mountPoint },
  }));
  return { ...isolation, volumes: [...(isolation.volumes ?? []), ...mounts] };
}

/**
 * True for a container in a network of its own, which finds services by their names. Processes and
 * containers in the network of the node get the addresses of services as environment variables: the
 * names do not always resolve there.
 */
function hasOwnNetwork({ image, network }: WorkloadSpec): boolean {
  return image !== '' && network?.hostNetwork !== true;
}

/**
 * True for a process or container that uses the DNS server of the node, if the node has one:
 * containers in the network of the node and containers with DNS servers of their own do not.
 */
export function usesNodeDnsServer({ network }: WorkloadSpec): boolean {
  return network?.hostNetwork !== true && (network?.dnsServers ?? []).length === 0;
}

/** Adds the DNS server of the node, unless the spec names other DNS servers. */
function withServices(
  isolation: Isolation,
  order: Order,
  services: ServiceAccess | undefined,
): Isolation {
  const { start, spec } = requireStart(order);
  if (services?.dns === undefined || !usesNodeDnsServer(spec)) return isolation;
  const network = { ...isolation.network, ...createDnsSettings(services.dns, start.namespace) };
  return { ...isolation, network };
}

/** Adds the networks to which the container may connect, if the spec limits them. */
function withEgress(
  isolation: Isolation,
  spec: WorkloadSpec,
  { services, serviceAddresses = new Map() }: ContainerIdentity,
): Isolation {
  const egress = spec.network?.egress;
  if (egress === undefined) return isolation;
  const dnsServer = usesNodeDnsServer(spec) ? services?.dns?.server : undefined;
  const rules = toEgressRules(egress, serviceAddresses, dnsServer);
  return { ...isolation, network: { ...isolation.network, egress: rules } };
}

/** Adds the mount of the directory with the certificate. The API reserves the name of the volume. */
function withIdentity(isolation: Isolation, identity: IdentityDirectory | undefined): Isolation {
  if (identity === undefined) return isolation;
  const mount: VolumeRequest = {
    name: WORKLOAD_IDENTITY_VOLUME,
    mountPath: WORKLOAD_IDENTITY_PATH,
    readOnly: true,
    source: { kind: 'prepared', ...identity },
  };
  return { ...isolation, volumes: [...(isolation.volumes ?? []), mount] };
}

/**
 * Environment variables that describe the replica to its process. They replace user variables of
 * the same name, so that the process can rely on them.
 */
function createReplicaVariables(
  { replicaId }: Order,
  { namespace, workload, version, slot }: StartOrder,
  { nodeId }: ContainerIdentity,
): Record<string, string> {
  return {
    CLOUDLESS_NAMESPACE: namespace,
    CLOUDLESS_WORKLOAD: workload,
    CLOUDLESS_REPLICA_ID: replicaId,
    CLOUDLESS_SLOT: String(slot),
    CLOUDLESS_VERSION: String(version),
    CLOUDLESS_NODE_ID: nodeId,
  };
}

/**
 * Returns the start order in `order` and its spec.
 * @throws kind `invalid` when the order is not a start order or has no spec.
 */
export function requireStart(order: Order): {
  readonly start: StartOrder;
  readonly spec: WorkloadSpec;
} {
  const start = order.order.case === 'start' ? order.order.value : undefined;
  if (start?.spec === undefined)
    throw new CloudlessError(
      'invalid',
      `order ${order.orderRevision} for ${order.replicaId} is not a start order with a spec`,
    );
  return { start, spec: start.spec };
}

/** Requests no host port with the host network, where every port is a port of the node. */
function toPortRequest(
  port: WorkloadSpec['ports'][number],
  { network }: WorkloadSpec,
): PortRequest {
  return {
    name: resolvePortName(port),
    port: port.containerPort,
    protocol: port.protocol === Port_Protocol.UDP ? 'udp' : 'tcp',
    ...(port.hostPort === 0 || network?.hostNetwork === true ? {} : { hostPort: port.hostPort }),
  };
}

function toRequests(resources: Resources | undefined): NonNullable<ContainerRequest['requests']> {
  const { cpuMillis = DEFAULTS.cpuMillis, memoryBytes = DEFAULTS.memoryBytes } =
    resources?.requests ?? {};
  return { cpuMillis, memoryBytes: Number(memoryBytes) };
}

/** Leaves out limits that are 0 or absent: both mean no limit. */
function toLimits(resources: Resources | undefined): ContainerRequest['limits'] {
  const { cpuMillis = 0, memoryBytes = 0n, pids = 0 } = resources?.limits ?? {};
  return {
    ...(cpuMillis > 0 ? { cpuMillis } : {}),
    ...(memoryBytes > 0n ? { memoryBytes: Number(memoryBytes) } : {}),
    ...(pids > 0 ? { pids } : {}),
  };
}
