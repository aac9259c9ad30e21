import { toNodeId, toReplicaId, toWorkloadId } from '@cloudless/base';
import { createCluster, type Cluster, type ClusterOptions } from '../cluster.js';
import type { SchedulerNode } from '../node.js';
import type { PlacementRequest } from '../request.js';
import type { Reservation } from '../reservation.js';

export const MIB = 1024 ** 2;
export const GIB = 1024 ** 3;

type Given<Whole> = { readonly [Key in keyof Whole]?: Whole[Key] };

/**
 * Four cores, 8 GiB, 100 GiB, 1 Gbit/s, no GPU, in zone `a` of region `eu`, nothing wrong with it.
 */
export function aNode(id: string, given: Given<Omit<SchedulerNode, 'id'>> = {}): SchedulerNode {
  const capacity = {
    cpuMillis: 4_000,
    memoryBytes: 8 * GIB,
    storageBytes: 100 * GIB,
    bandwidthBps: 1e9,
    gpus: 0,
  };
  return { id: toNodeId(id), region: 'eu', zone: 'a', capacity, ...given };
}

/** Workload `web` of namespace `default`: 500 m CPU and 512 MiB a replica, labelled `app=web`. */
export function aRequest(given: Given<PlacementRequest> = {}): PlacementRequest {
  return {
    workloadId: toWorkloadId('web'),
    namespace: 'default',
    labels: { app: 'web' },
    resources: { cpuMillis: 500, memoryBytes: 512 * MIB },
    ...given,
  };
}

/** A replica of {@link aRequest}'s workload on node `n1`, unless said otherwise. */
export function aReservation(
  replicaId: string,
  given: Given<Omit<Reservation, 'replicaId'>> = {},
): Reservation {
  const { workloadId, namespace, resources } = aRequest();
  return {
    nodeId: toNodeId('n1'),
    workloadId,
    namespace,
    labels: { app: 'web' },
    resources,
    ...given,
    replicaId: toReplicaId(replicaId),
  };
}

/** What a caller reserves after it has committed a placement. */
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

/** A cluster of these nodes and reservations. */
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

/** The nodes that replicas are placed on, in order; `undefined` for a refused one. */
export function placedOn(
  cluster: Cluster,
  request: PlacementRequest,
  count = 1,
): (string | undefined)[] {
  return cluster
    .place(request, count)
    .map((placement) => (placement.placed ? placement.nodeId : undefined));
}
