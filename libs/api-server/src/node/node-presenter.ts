import { create } from '@bufbuild/protobuf';
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
import { toDrainStatus, toEffectiveNode } from '@cloudless/cluster-state';
import type { ApiServerDeps } from '../ports.js';

/**
 * Builds the API message of a node from its record, its live status, the resources of its replicas
 * and its drain.
 */
export function presentNode(
  { state, nodes, placements }: Pick<ApiServerDeps, 'state' | 'nodes' | 'placements'>,
  record: NodeRecord,
): Node {
  const live = nodes.status(record.id);
  const isConnected = live.phase === NodePhase.READY;
  const { hello } = record;
  const { region, zone, labels, taints } = toEffectiveNode(record);
  const allocated = placements.getAllocated(record.id);
  const drain = toDrainStatus({ view: state.view(), nodes }, record);
  const createCondition = (type: ConditionType, status: boolean, reason = '') =>
    create(ConditionSchema, { type, status, reason });
  return create(NodeSchema, {
    id: record.id,
    region,
    zone,
    labels: { ...labels },
    taints,
    cordoned: record.cordoned,
    draining: record.draining,
    ...definedFields({ createdAt: record.createdAt }),
    status: create(NodeStatusSchema, {
      phase: live.phase,
      reason: live.reason,
      conditions: [
        createCondition(ConditionType.READY, isConnected, live.reason),
        createCondition(ConditionType.MEMORY_PRESSURE, live.memoryPressure),
        createCondition(ConditionType.DISK_PRESSURE, live.diskPressure),
        createCondition(ConditionType.NETWORK_UNAVAILABLE, live.networkUnavailable),
        createCondition(ConditionType.QUARANTINED, live.quarantined),
        createCondition(
          ConditionType.CONTAINER_RUNTIME_UNAVAILABLE,
          live.containersUnavailable,
          live.containersUnavailable
            ? 'the container runtime does not answer: no new container is placed on this node'
            : '',
        ),
        createCondition(ConditionType.AGENT_SLOW, live.agentSlow, live.agentSlowReason),
      ],
      allocated: create(NodeCapacitySchema, {
        cpuMillis: allocated.cpuMillis,
        memoryBytes: BigInt(allocated.memoryBytes),
      }),
      replicaCount: allocated.replicas,
      capabilities: hello?.capabilities ?? [],
      maxReplicas: hello?.maxReplicas ?? 0,
      agentVersion: hello?.agentVersion ?? '',
      architecture: hello?.architecture ?? '',
      operatingSystem: hello?.operatingSystem ?? '',
      agentAddress: hello?.agentAddress ?? '',
      reliability: live.reliability,
      ...definedFields({
        capacity: hello?.capacity,
        reserved: hello?.reserved,
        drain,
        usage: live.usage,
      }),
      ...(live.connectedSinceMs === undefined || !isConnected
        ? {}
        : { connectedSince: timestampFromMs(live.connectedSinceMs) }),
      ...(live.lastSeenMs === undefined ? {} : { lastSeen: timestampFromMs(live.lastSeenMs) }),
    }),
  });
}
