import { clone, create } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import {
  HOST_PATH_CAPABILITY,
  HOST_PATHS_CAPABILITY,
  NodeCapacitySchema,
  type NodeCapacity,
  type SimulatedNodes,
} from '@cloudless/api';
import { NodeRecordSchema, type NodeRecord } from '@cloudless/api/store';
import { InvalidInputError, isPathWithin } from '@cloudless/base';
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
  view: Pick<ClusterView, 'node' | 'nodes'>,
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

/**
 * Returns the capabilities that every node of the cluster has, in alphabetical order. A directory of
 * host paths is common when each node names the directory, or one that contains it.
 */
function listCommonCapabilities(view: Pick<ClusterView, 'nodes'>): string[] {
  const nodes = Array.from(view.nodes(), ({ value }) => new Set(value.hello?.capabilities));
  const [first = new Set<string>(), ...others] = nodes;
  const common = [...first].filter(
    (capability) =>
      !capability.startsWith(HOST_PATH_CAPABILITY) && others.every((own) => own.has(capability)),
  );
  if (!common.includes(HOST_PATHS_CAPABILITY)) return common.sort();
  const directories = nodes.map(listHostPaths);
  const named = [...new Set(directories.flat())];
  // A node that names no directory has an agent of an earlier version, which may allow any path.
  const shared = named.filter((path) =>
    directories.every((own) => own.length === 0 || own.some((other) => isPathWithin(path, other))),
  );
  if (named.length > 0 && shared.length === 0)
    return common.filter((capability) => capability !== HOST_PATHS_CAPABILITY).sort();
  return [...common, ...shared.map((path) => `${HOST_PATH_CAPABILITY}${path}`)].sort();
}

/** Returns the directories of host paths that a node names. */
function listHostPaths(capabilities: ReadonlySet<string>): readonly string[] {
  return [...capabilities].flatMap((name) =>
    name.startsWith(HOST_PATH_CAPABILITY) ? [name.slice(HOST_PATH_CAPABILITY.length)] : [],
  );
}
