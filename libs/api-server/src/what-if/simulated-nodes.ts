import { clone, create } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { NodeCapacitySchema, type NodeCapacity, type SimulatedNodes } from '@cloudless/api';
import { NodeRecordSchema, type NodeRecord } from '@cloudless/api/store';
import { InvalidInputError } from '@cloudless/base';
import { toEffectiveNode, type ClusterView } from '@cloudless/cluster-state';
import { requireNode } from '../node/node-change.js';

/** Begin of the ids of new nodes without a name. */
const DEFAULT_NAME = 'new';

/**
 * Creates the records of nodes that are added to a simulated cluster.
 * @param taken - The ids of all nodes so far. Gets the new ids.
 * @param nowMs - Wall-clock milliseconds.
 * @throws kind `notFound` when the node in `like` does not exist, `invalid` when the nodes would
 *   have no capacity.
 */
export function createSimulatedNodes(
  view: ClusterView,
  request: SimulatedNodes,
  taken: Set<string>,
  nowMs: number,
): readonly NodeRecord[] {
  const { count, name, like } = request;
  const model = like === '' ? undefined : requireNode(view, like).value;
  const hello = model?.hello;
  const capacity = requireCapacity(request.capacity ?? hello?.capacity);
  const base = model === undefined ? undefined : toEffectiveNode(model);
  const createNode = (id: string): NodeRecord =>
    create(NodeRecordSchema, {
      id,
      createdAt: timestampFromMs(nowMs),
      zone: request.zone ?? base?.zone ?? '',
      region: request.region ?? base?.region ?? '',
      labels: { ...base?.labels, ...request.labels },
      taints: [...(base?.taints ?? []), ...request.taints],
      hello: {
        nodeId: id,
        capacity: clone(NodeCapacitySchema, capacity),
        reserved: clone(
          NodeCapacitySchema,
          request.reserved ?? hello?.reserved ?? create(NodeCapacitySchema),
        ),
        maxReplicas: request.maxReplicas === 0 ? (hello?.maxReplicas ?? 0) : request.maxReplicas,
        capabilities:
          request.capabilities.length > 0
            ? request.capabilities
            : (hello?.capabilities ?? listCommonCapabilities(view)),
      },
    });
  const nodes: NodeRecord[] = [];
  for (let number = 1; nodes.length < Math.max(1, count); number += 1) {
    const id = `${name === '' ? DEFAULT_NAME : name}-${number}`;
    if (taken.has(id)) continue;
    taken.add(id);
    nodes.push(createNode(id));
  }
  return nodes;
}

function requireCapacity(capacity: NodeCapacity | undefined): NodeCapacity {
  if (capacity !== undefined && capacity.cpuMillis > 0 && capacity.memoryBytes > 0n)
    return capacity;
  throw new InvalidInputError([
    {
      field: 'capacity',
      message: 'needs cpu_millis and memory_bytes above 0, or "like" with the id of a node',
    },
  ]);
}

/** Returns the capabilities that every node of the cluster has, in alphabetical order. */
function listCommonCapabilities(view: ClusterView): string[] {
  let common: Set<string> | undefined;
  for (const { value } of view.nodes()) {
    const capabilities = new Set(value.hello?.capabilities);
    common =
      common === undefined
        ? capabilities
        : new Set([...common].filter((capability) => capabilities.has(capability)));
  }
  return [...(common ?? [])].sort();
}
