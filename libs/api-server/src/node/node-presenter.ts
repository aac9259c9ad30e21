import { create } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { definedFields } from '@cloudless/base';
import {
  Condition_Type as ConditionType,
  ConditionSchema,
  NodeCapacitySchema,
  NodeSchema,
  NodeStatusSchema,
  type Node,
} from '@cloudless/api';
import type { NodeRecord } from '@cloudless/api/store';
import { toDrainStatus, toEffectiveNode } from '@cloudless/cluster-state';
import type { ApiServerDeps } from '../ports.js';

/** Builds the API message of a node from its record, its live status and its placements. */
export function presentNode(
  { state, nodes, placements }: Pick<ApiServerDeps, 'state' | 'nodes' | 'placements'>,
  record: NodeRecord,
): Node {
  const now = nodes.status(record.id);
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
      phase: now.phase,
      reason: now.reason,
      conditions: [
        createCondition(ConditionType.READY, now.alive, now.reason),
        createCondition(ConditionType.MEMORY_PRESSURE, now.memoryPressure),
        createCondition(ConditionType.DISK_PRESSURE, now.diskPressure),
        createCondition(ConditionType.NETWORK_UNAVAILABLE, now.networkUnavailable),
        createCondition(ConditionType.QUARANTINED, now.quarantined),
        createCondition(
          ConditionType.CONTAINER_RUNTIME_UNAVAILABLE,
          now.containersUnavailable,
          now.containersUnavailable
            ? 'the container runtime does not answer: no new container is placed on this node'
            : '',
        ),
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
      reliability: now.reliability,
      ...definedFields({
        capacity: hello?.capacity,
        reserved: hello?.reserved,
        drain,
        usage: now.usage,
      }),
      ...(now.connectedSinceMs === undefined || !now.alive
        ? {}
        : { connectedSince: timestampFromMs(now.connectedSinceMs) }),
      ...(now.lastSeenMs === undefined ? {} : { lastSeen: timestampFromMs(now.lastSeenMs) }),
    }),
  });
}
