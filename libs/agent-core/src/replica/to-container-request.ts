import { CloudlessError, type ContainerId } from '@cloudless/base';
import {
  DEFAULTS,
  Port_Protocol,
  portNameOf,
  type Order,
  type Resources,
  type StartOrder,
  type WorkloadSpec,
} from '@cloudless/api';
import type { ContainerLease, ContainerRequest, PortRequest } from '@cloudless/runtime';
import { toContainerLabels } from './container-labels.js';
import { toIsolation } from './to-isolation.js';

/** Which container of which agent a request is for. */
export interface ContainerPlace {
  readonly clusterId: string;
  readonly nodeId: string;
  readonly containerId: ContainerId;
  /** Restarts in place before this container; default 0. */
  readonly restarts?: number;
  /** Of an exclusive replica. */
  readonly lease?: ContainerLease;
}

/**
 * What the runtime is asked for to fulfil a start order. Every field of the spec that concerns a
 * container goes in; the others are read by the scheduler (placement, priority), the rollout, or by
 * {@link toReplicaPlan}.
 * @throws kind `invalid` when the order is no start order or has no spec.
 */
export function toContainerRequest(order: Order, place: ContainerPlace): ContainerRequest {
  const { start, spec } = startOf(order);
  const labels = toContainerLabels(
    {
      clusterId: place.clusterId,
      nodeId: place.nodeId,
      replicaId: order.replicaId,
      workloadUid: order.workloadUid,
      namespace: start.namespace,
      workload: start.workload,
      version: start.version,
      slot: start.slot,
      orderRevision: order.orderRevision,
      restarts: place.restarts ?? 0,
    },
    spec,
  );
  return {
    containerId: place.containerId,
    labels,
    ...(spec.image === '' ? {} : { image: spec.image }),
    command: spec.command,
    args: spec.args,
    env: { ...spec.env, ...ownVariables(order, start, place) },
    ...(spec.workingDir === '' ? {} : { workingDir: spec.workingDir }),
    ports: spec.ports.map((port) => toPortRequest(port, spec)),
    limits: toLimits(spec.resources),
    requests: toRequests(spec.resources),
    group: order.replicaId,
    ...toIsolation(spec, start),
    ...(place.lease === undefined ? {} : { lease: place.lease }),
  };
}

/**
 * What a replica may want to know of itself. Set over the user's own, so that it can be trusted.
 */
function ownVariables(
  { replicaId }: Order,
  { namespace, workload, version, slot }: StartOrder,
  { nodeId }: ContainerPlace,
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

/** The start part of an order. @throws kind `invalid` when it has none, or one without a spec. */
export function startOf(order: Order): { readonly start: StartOrder; readonly spec: WorkloadSpec } {
  const start = order.order.case === 'start' ? order.order.value : undefined;
  if (start?.spec === undefined)
    throw new CloudlessError(
      'invalid',
      `order ${order.orderRevision} for ${order.replicaId} starts nothing`,
    );
  return { start, spec: start.spec };
}

/** In the node's own network every port is one of the node anyway. */
function toPortRequest(
  port: WorkloadSpec['ports'][number],
  { network }: WorkloadSpec,
): PortRequest {
  return {
    name: portNameOf(port),
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

/** Zero means no limit, as an absent one does. */
function toLimits(resources: Resources | undefined): ContainerRequest['limits'] {
  const { cpuMillis = 0, memoryBytes = 0n, pids = 0 } = resources?.limits ?? {};
  return {
    ...(cpuMillis > 0 ? { cpuMillis } : {}),
    ...(memoryBytes > 0n ? { memoryBytes: Number(memoryBytes) } : {}),
    ...(pids > 0 ? { pids } : {}),
  };
}
