import { toNodeId, toReplicaId, toWorkloadId, type Random } from '@cloudless/base';
import {
  createCluster,
  type Cluster,
  type PlacementRequest,
  type ReplicaOnNode,
  type ReservationTemplate,
  type SchedulerNode,
} from '@cloudless/scheduler';

export const MIB = 1024 ** 2;
export const GIB = 1024 ** 3;
/** Zones of all worlds. */
export const ZONES = ['zone-a', 'zone-b', 'zone-c'] as const;

/** Draws a whole number from `min` to `max`. */
export function draw(random: Random, min: number, max: number): number {
  return min + Math.floor(random.next() * (max - min + 1));
}

/**
 * A node with 16 to 64 cores in one of three zones, with labels for disk, rack and generation. One
 * node in twenty has a taint.
 */
export function createNode(random: Random, index: number): SchedulerNode {
  const cores = 16 * draw(random, 1, 4);
  return {
    id: toNodeId(`node-${index}`),
    region: 'local',
    zone: ZONES[index % ZONES.length] ?? 'zone-a',
    labels: {
      disk: index % 4 === 0 ? 'nvme' : 'ssd',
      rack: `rack-${index % 100}`,
      generation: String(draw(random, 1, 4)),
    },
    taints: index % 20 === 0 ? [{ key: 'dedicated', value: 'batch', effect: 'NoSchedule' }] : [],
    capacity: { cpuMillis: cores * 1_000, memoryBytes: cores * 4 * GIB },
    maxReplicas: 320,
    capabilities: ['runtime.process'],
  };
}

/** Creates a cluster of `count` nodes. Equal sources of randomness give equal clusters. */
export function createWorld(random: Random, count: number): Cluster {
  const cluster = createCluster();
  for (let index = 0; index < count; index += 1) cluster.upsertNode(createNode(random, index));
  return cluster;
}

/** A request of 100 m CPU and 500 MiB of its own workload, with further fields. */
export function createRequest(
  workload: string,
  more: Partial<PlacementRequest> = {},
): PlacementRequest {
  return {
    workloadId: toWorkloadId(workload),
    namespace: 'default',
    labels: { app: workload },
    resources: { cpuMillis: 100, memoryBytes: 500 * MIB },
    capabilities: ['runtime.process'],
    ...more,
  };
}

/** A request that no other replica has: other amounts, labels and tolerations. */
export function createUniqueRequest(random: Random, index: number): PlacementRequest {
  return createRequest(`unique-${index}`, {
    labels: { app: `unique-${index}`, tier: `tier-${index % 7}` },
    resources: {
      cpuMillis: draw(random, 20, 400),
      memoryBytes: draw(random, 32, 1_000) * MIB + index,
    },
    nodeSelector: { disk: index % 3 === 0 ? 'nvme' : 'ssd' },
    tolerations: index % 2 === 0 ? [{ key: 'dedicated', operator: 'Exists' }] : [],
  });
}

/**
 * Places replicas of a request in one call and reserves them, as the placer does after its commit.
 * @param prefix - Begin of the replica ids.
 * @returns The nodes in order; fewer than `count` when replicas were refused.
 */
export function placeAndReserve(
  cluster: Cluster,
  request: PlacementRequest,
  count: number,
  prefix: string,
): string[] {
  const { workloadId, namespace, resources, labels, workloadAntiAffinity } = request;
  const replicas: ReplicaOnNode[] = [];
  for (const placement of cluster.place(request, count)) {
    if (!placement.placed) continue;
    const replicaId = toReplicaId(`${prefix}-${replicas.length}`);
    replicas.push({ replicaId, nodeId: placement.nodeId });
  }
  const template: ReservationTemplate = {
    workloadId,
    namespace,
    resources,
    ...(labels === undefined ? {} : { labels }),
    ...(workloadAntiAffinity === undefined ? {} : { workloadAntiAffinity }),
  };
  cluster.reserveAll(template, replicas);
  return replicas.map(({ nodeId }) => nodeId);
}
