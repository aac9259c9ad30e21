import { toNodeId, toReplicaId, toWorkloadId } from '@cloudless/base';
import { createCluster, type Cluster, type ClusterOptions } from '../cluster.js';
import type { SchedulerNode } from '../input/node.js';
import type { PlacementRequest } from '../input/request.js';
import type { Reservation } from '../input/reservation.js';

export const MIB = 1024 ** 2;
export const GIB = 1024 ** 3;

/** Fields that differ from the defaults of a builder. */
type Changes<Whole> = { readonly [Key in keyof Whole]?: Whole[Key] };

/**
 * A node with 4 cores, 8 GiB memory, 100 GiB storage, 1 Gbit/s and no GPU in zone `a` of region
 * `eu`, available and without conditions.
 */
export function aNode(id: string, changes: Changes<Omit<SchedulerNode, 'id'>> = {}): SchedulerNode {
  const capacity = {
    cpuMillis: 4_000,
    memoryBytes: 8 * GIB,
    storageBytes: 100 * GIB,
    bandwidthBps: 1e9,
    gpus: 0,
  };
  return { id: toNodeId(id), region: 'eu', zone: 'a', capacity, ...changes };
}

/**
 * A request of workload `web` in namespace `default`: 500 m CPU and 512 MiB per replica, label
 * `app=web`.
 */
export function aRequest(changes: Changes<PlacementRequest> = {}): PlacementRequest {
  return {
    workloadId: toWorkloadId('web'),
    namespace: 'default',
    labels: { app: 'web' },
    resources: { cpuMillis: 500, memoryBytes: 512 * MIB },
    ...changes,
  };
}

/** A reservation of {@link aRequest}'s workload on node `n1`. */
export function aReservation(
  replicaId: string,
  changes: Changes<Omit<Reservation, 'replicaId'>> = {},
): Reservation {
  const { workloadId, namespace, resources } = aRequest();
  return {
    nodeId: toNodeId('n1'),
    workloadId,
    namespace,
    labels: { app: 'web' },
    resources,
    ...changes,
    replicaId: toReplicaId(replicaId),
  };
}

/** The reservation that a caller adds after committing a placement of the request. */
export function reservationFor(
  request: PlacementRequest,
  replicaId: string,
  nodeId: string,
): Reservation {
  const {
    workloadId,
    namespace,
    labels = {},
    resources,
    workloadAntiAffinity = [],
    hostPorts = [],
  } = request;
  return {
    replicaId: toReplicaId(replicaId),
    nodeId: toNodeId(nodeId),
    workloadId,
    namespace,
    labels,
    resources,
    hostPorts,
    workloadAntiAffinity,
  };
}

/** A cluster with these nodes and reservations. */
export function aCluster(
  nodes: readonly SchedulerNode[],
  reservations: readonly Reservation[] = [],
  options?: ClusterOptions,
): Cluster {
  const cluster = createCluster(options);
  nodes.forEach((node) => cluster.upsertNode(node));
  reservations.forEach((reservation) => cluster.reserve(reservation));
  return cluster;
}

/** Places `count` replicas and returns the node ids in order; `undefined` for a refusal. */
export function placedOn(
  cluster: Cluster,
  request: PlacementRequest,
  count = 1,
): (string | undefined)[] {
  return cluster
    .place(request, count)
    .map((placement) => (placement.placed ? placement.nodeId : undefined));
}
