import { create } from '@bufbuild/protobuf';
import {
  SimulatedCapacitySchema,
  SimulatedHeadroomSchema,
  type SimulatedCapacity,
  type SimulatedHeadroom,
} from '@cloudless/api';
import { toNodeId } from '@cloudless/base';
import { AVAILABILITY_ORDER, type Cluster } from '@cloudless/scheduler';

/** Most zones in a summary; a cluster with more has a zone for each machine. */
const MAX_ZONES = 64;

/**
 * Sums the capacity of the nodes that accept new replicas, in the whole cluster and in each zone.
 * @param nodeIds - All nodes. Nodes that the model does not know are left out.
 */
export function summarizeCapacity(
  cluster: Pick<Cluster, 'node' | 'usage'>,
  nodeIds: Iterable<string>,
): SimulatedCapacity {
  const total = create(SimulatedHeadroomSchema);
  const zones = new Map<string, SimulatedHeadroom>();
  for (const id of nodeIds) {
    const node = cluster.node(toNodeId(id));
    const usage = cluster.usage(toNodeId(id));
    if (node === undefined || usage === undefined) continue;
    if (AVAILABILITY_ORDER.some((condition) => node.availability?.[condition] === true)) continue;
    const name = formatZone(node);
    const zone = zones.get(name) ?? create(SimulatedHeadroomSchema, { zone: name });
    zones.set(name, zone);
    addNode(total, usage);
    addNode(zone, usage);
  }
  const sorted = [...zones.values()].sort((a, b) => (a.zone < b.zone ? -1 : 1));
  return create(SimulatedCapacitySchema, { total, zones: sorted.slice(0, MAX_ZONES) });
}

/** Returns the name of a zone: `eu/a`, or `a` in a cluster without regions. */
export function formatZone({
  region = '',
  zone = '',
}: {
  readonly region?: string;
  readonly zone?: string;
}): string {
  return region === '' ? zone : `${region}/${zone}`;
}

type Usage = NonNullable<ReturnType<Cluster['usage']>>;

function addNode(sum: SimulatedHeadroom, usage: Usage): void {
  const { allocatable, free, replicas, maxReplicas } = usage;
  const [freeCpu, freeMemory] = [BigInt(free.cpuMillis), BigInt(free.memoryBytes)];
  sum.nodes += 1;
  sum.cpuMillis += BigInt(allocatable.cpuMillis);
  sum.freeCpuMillis += freeCpu;
  sum.memoryBytes += BigInt(allocatable.memoryBytes);
  sum.freeMemoryBytes += freeMemory;
  sum.freeReplicas += BigInt(Math.max(0, maxReplicas - replicas));
  if (freeCpu > sum.largestFreeCpuMillis) sum.largestFreeCpuMillis = freeCpu;
  if (freeMemory > sum.largestFreeMemoryBytes) sum.largestFreeMemoryBytes = freeMemory;
}
