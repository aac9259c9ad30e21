import { create, type MessageInitShape } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { definedFields } from '@cloudless/base';
import {
  Condition_Type as ConditionType,
  ConditionSchema,
  NodeCapacitySchema,
  NodeSchema,
  NodeStatus_Phase as NodePhase,
  NodeStatusSchema,
  type Node,
} from '@cloudless/api';
import type { NodeRecord } from '@cloudless/api/store';
import { toDrainStatus, toEffectiveNode, type NodeLiveStatus } from '@cloudless/cluster-state';
import type { ReadDeps } from '../ports.js';

/**
 * Builds the API message of a node from its record, its live status, the resources of its replicas
 * and its drain.
 */
export function presentNode(
  { state, nodes, placements }: Pick<ReadDeps, 'state' | 'nodes' | 'placements'>,
  record: NodeRecord,
): Node {
  const live = nodes.status(record.id);
  const allocated = placements.getAllocated(record.id);
  const drain = toDrainStatus({ view: state.view(), nodes }, record);
  const node = presentNodeHead(record);
  node.status = create(NodeStatusSchema, {
    ...presentNodeFacts(record),
    phase: live.phase,
    reason: live.reason,
    conditions: listConditions(live).map((condition) => create(ConditionSchema, condition)),
    allocated: create(NodeCapacitySchema, {
      cpuMillis: allocated.cpuMillis,
      memoryBytes: BigInt(allocated.memoryBytes),
      storageBytes: BigInt(allocated.storageBytes),
      bandwidthBps: BigInt(allocated.bandwidthBps),
      gpus: allocated.gpus,
      custom: Object.fromEntries(
        Object.entries(allocated.custom).map(([name, amount]) => [name, BigInt(amount)]),
      ),
    }),
    replicaCount: allocated.replicas,
    reliability: live.reliability,
    ...definedFields({ drain, usage: live.usage }),
    ...(live.connectedSinceMs === undefined || !isConnected(live)
      ? {}
      : { connectedSince: timestampFromMs(live.connectedSinceMs) }),
    ...(live.lastSeenMs === undefined ? {} : { lastSeen: timestampFromMs(live.lastSeenMs) }),
  });
  return node;
}

/** Returns true when the agent of a node has a session. */
export function isConnected({ phase }: NodeLiveStatus): boolean {
  return phase === NodePhase.READY;
}

/** Builds the API message of a node without its status. */
export function presentNodeHead(record: NodeRecord): Node {
  const { region, zone, labels, taints } = toEffectiveNode(record);
  return create(NodeSchema, {
    id: record.id,
    region,
    zone,
    labels: { ...labels },
    taints,
    cordoned: record.cordoned,
    draining: record.draining,
    ...definedFields({ createdAt: record.createdAt }),
  });
}

/** Returns the fields of the status that the agent has sent at the start of its session. */
export function presentNodeFacts({
  hello,
}: NodeRecord): MessageInitShape<typeof NodeStatusSchema> & object {
  return {
    capabilities: hello?.capabilities ?? [],
    maxReplicas: hello?.maxReplicas ?? 0,
    agentVersion: hello?.agentVersion ?? '',
    architecture: hello?.architecture ?? '',
    operatingSystem: hello?.operatingSystem ?? '',
    agentAddress: hello?.agentAddress ?? '',
    ...definedFields({
      capacity: hello?.capacity,
      reserved: hello?.reserved,
      networkProxy: hello === undefined ? undefined : hello.network !== undefined,
    }),
  };
}

/** Returns all conditions of a node, in a fixed order. */
export function listConditions(live: NodeLiveStatus): readonly {
  readonly type: ConditionType;
  readonly status: boolean;
  readonly reason: string;
}[] {
  const toCondition = (type: ConditionType, status: boolean, reason = '') => ({
    type,
    status,
    reason,
  });
  return [
    toCondition(ConditionType.READY, isConnected(live), live.reason),
    toCondition(ConditionType.MEMORY_PRESSURE, live.memoryPressure),
    toCondition(ConditionType.DISK_PRESSURE, live.diskPressure),
    toCondition(ConditionType.NETWORK_UNAVAILABLE, live.networkUnavailable),
    toCondition(ConditionType.QUARANTINED, live.quarantined),
    toCondition(
      ConditionType.CONTAINER_RUNTIME_UNAVAILABLE,
      live.containersUnavailable,
      live.containersUnavailable
        ? 'the container runtime does not answer: no new container is placed on this node'
        : '',
    ),
    toCondition(ConditionType.AGENT_SLOW, live.agentSlow, live.agentSlowReason),
    toCondition(
      ConditionType.NETWORK_PROXY_DEGRADED,
      live.networkProxyProblem !== '',
      live.networkProxyProblem,
    ),
    toCondition(ConditionType.DISK_FULL, live.diskFull, live.diskFullReason),
    toCondition(
      ConditionType.PROCESS_RUNTIME_UNAVAILABLE,
      live.processesProblem !== '',
      live.processesProblem,
    ),
  ];
}
