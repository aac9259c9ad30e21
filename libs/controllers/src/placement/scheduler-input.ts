import {
  listRequiredCapabilities,
  listHostPorts,
  LabelRequirement_Operator as LabelOperator,
  NodeStatus_Phase as NodePhase,
  Placement_Locality as Locality,
  Spread_Mode as SpreadMode,
  type Affinity_NodeTerm,
  type Affinity_WorkloadTerm,
  type LabelRequirement as ApiRequirement,
  type NodeCapacity,
  type Toleration as ApiToleration,
  type WorkloadSpec,
} from '@cloudless/api';
import type { NodeRecord, ReplicaRecord, WorkloadRecord } from '@cloudless/api/store';
import { definedFields, toNodeId, toReplicaId, toWorkloadId, type NodeId } from '@cloudless/base';
import { toEffectiveNode, type NodeLiveStatus } from '@cloudless/cluster-state';
import {
  DEFAULT_PRIORITY,
  type LabelRequirement,
  type NodeTerm,
  type PlacementRequest,
  type ReplicaOnNode,
  type Reservation,
  type ResourceAmounts,
  type SchedulerNode,
  type Toleration,
  type WorkloadTerm,
} from '@cloudless/scheduler';
import { isSupportedTaint, toTaint, toToleration } from './taints.js';

const operators: Record<LabelOperator, LabelRequirement['operator']> = {
  [LabelOperator.IN]: 'In',
  [LabelOperator.NOT_IN]: 'NotIn',
  [LabelOperator.EXISTS]: 'Exists',
  [LabelOperator.DOES_NOT_EXIST]: 'DoesNotExist',
  [LabelOperator.GT]: 'Gt',
  [LabelOperator.LT]: 'Lt',
};

/** The capability that every OCI container needs; suspended while the container runtime is away. */
const CONTAINER_CAPABILITY = 'runtime.cri';
/** Capability of nodes that start processes. */
const PROCESS_CAPABILITY = 'runtime.process';

/** Converts a node record and the live status of the node to the node of the scheduler. */
export function toSchedulerNode(record: NodeRecord, liveStatus: NodeLiveStatus): SchedulerNode {
  const { hello } = record;
  const lost = record.lost || liveStatus.phase === NodePhase.LOST;
  const { region, zone, labels, taints } = toEffectiveNode(record);
  return {
    id: toNodeId(record.id),
    region,
    zone,
    labels,
    taints: taints.filter(isSupportedTaint).map(toTaint),
    capacity: toAmounts(hello?.capacity),
    systemReserved: toReserved(hello?.reserved),
    ...(hello === undefined || hello.maxReplicas <= 0 ? {} : { maxReplicas: hello.maxReplicas }),
    capabilities: hello?.capabilities ?? [],
    ...toSuspended(hello?.capabilities ?? [], liveStatus),
    conditions: {
      memoryPressure: liveStatus.memoryPressure,
      diskPressure: liveStatus.diskPressure,
      networkUnavailable: liveStatus.networkUnavailable,
    },
    reliability: liveStatus.reliability,
    // Orders cannot reach a node without a live session, so nothing new is placed there.
    availability: {
      lost,
      unreachable: !lost && !liveStatus.alive,
      draining: record.draining,
      // A drain cordons the node, too: one reason says it.
      cordoned: record.cordoned && !record.draining,
      quarantined: liveStatus.quarantined,
    },
  };
}

/** A full disk suspends all runtimes; every replica needs one of them. */
function toSuspended(
  capabilities: readonly string[],
  { diskFull, containersUnavailable, processesProblem }: NodeLiveStatus,
): Pick<SchedulerNode, 'suspendedCapabilities' | 'suspensionReason'> {
  if (diskFull) {
    const runtimes = capabilities.filter((capability) => capability.startsWith('runtime.'));
    return { suspendedCapabilities: runtimes, suspensionReason: 'the disk of the node is full' };
  }
  const suspended = [
    ...(containersUnavailable ? [CONTAINER_CAPABILITY] : []),
    ...(processesProblem === '' ? [] : [PROCESS_CAPABILITY]),
  ];
  return suspended.length > 0 ? { suspendedCapabilities: suspended } : {};
}

/**
 * Creates the placement request of one new replica.
 * @param template - The replica template, which may be that of an older version.
 */
export function toPlacementRequest(
  workload: WorkloadRecord,
  template: WorkloadSpec,
): PlacementRequest {
  const { placement } = template;
  const spread = placement?.spread;
  return {
    workloadId: toWorkloadId(workload.uid),
    namespace: workload.namespace,
    labels: template.labels,
    resources: toRequests(template),
    hostPorts: listHostPorts(template),
    ...definedFields({ priority: template.priority }),
    regions: placement?.regions ?? [],
    zones: placement?.zones ?? [],
    locality: placement?.locality === Locality.PREFERRED ? 'preferred' : 'required',
    nodeSelector: placement?.nodeSelector ?? {},
    nodeAffinity: (placement?.affinity?.nodes ?? []).map(toNodeTerm),
    nodeAntiAffinity: (placement?.antiAffinity?.nodes ?? []).map(toNodeTerm),
    workloadAffinity: (placement?.affinity?.workloads ?? []).map(toWorkloadTerm),
    workloadAntiAffinity: (placement?.antiAffinity?.workloads ?? []).map(toWorkloadTerm),
    tolerations: (placement?.tolerations ?? []).flatMap(toPlacingTolerations),
    ...(spread === undefined
      ? {}
      : {
          spread: {
            topology: spread.topology,
            mode: spread.mode === SpreadMode.REQUIRED ? 'required' : 'preferred',
            maxSkew: Math.max(1, spread.maxSkew),
          },
        }),
    // The disconnect policy is not part of the template: a change of it replaces no replica.
    capabilities: listRequiredCapabilities(template, workload.spec),
  };
}

/**
 * Creates the placement request that decides whether a replica may stay on its node: taints that
 * the replica tolerates for a limited time count as tolerated.
 */
export function toStayingRequest(
  workload: WorkloadRecord,
  template: WorkloadSpec,
): PlacementRequest {
  return {
    ...toPlacementRequest(workload, template),
    tolerations: (template.placement?.tolerations ?? []).map(toToleration),
  };
}

/** The fields of a replica that its reservation depends on. */
export type ReservingReplica = Pick<
  ReplicaRecord,
  'id' | 'uid' | 'nodeId' | 'nominatedNodeId' | 'desiredRunning'
>;

type TemplateReservation = Required<
  Omit<Reservation, 'replicaId' | 'nodeId' | 'workloadId' | 'namespace' | 'leaving'>
>;

/** Common part of the reservations of each template. A stored template does not change. */
const ofTemplates = new WeakMap<WorkloadSpec, TemplateReservation>();

/**
 * Creates the reservation of a replica that has a node, or waits for one by a nomination. One object
 * literal, without a spread: this runs for every placement.
 */
export function toReservation(
  workload: { readonly namespace: string },
  { id, uid, nodeId, nominatedNodeId, desiredRunning }: ReservingReplica,
  template: WorkloadSpec,
): Reservation {
  const { labels, priority, resources, hostPorts, workloadAntiAffinity } =
    getTemplateReservation(template);
  return {
    replicaId: toReplicaId(id),
    nodeId: findReservedNode(nodeId, nominatedNodeId),
    workloadId: toWorkloadId(uid),
    namespace: workload.namespace,
    leaving: !desiredRunning,
    labels,
    priority,
    resources,
    hostPorts,
    workloadAntiAffinity,
  };
}

/** Returns what differs in the reservations of the replicas of one template. */
export function toReplicaOnNode({ id, nodeId, nominatedNodeId }: ReservingReplica): ReplicaOnNode {
  return { replicaId: toReplicaId(id), nodeId: findReservedNode(nodeId, nominatedNodeId) };
}

function findReservedNode(nodeId: string, nominatedNodeId: string): NodeId {
  return toNodeId(nodeId === '' ? nominatedNodeId : nodeId);
}

function getTemplateReservation(template: WorkloadSpec): TemplateReservation {
  const known = ofTemplates.get(template);
  if (known !== undefined) return known;
  const created: TemplateReservation = {
    labels: template.labels,
    priority: template.priority ?? DEFAULT_PRIORITY,
    resources: toRequests(template),
    hostPorts: listHostPorts(template),
    workloadAntiAffinity: (template.placement?.antiAffinity?.workloads ?? []).map(toWorkloadTerm),
  };
  ofTemplates.set(template, created);
  return created;
}

/** Returns what each replica of a template reserves on its node. */
export function toRequests(template: WorkloadSpec | undefined): ResourceAmounts {
  const requests = template?.resources?.requests;
  if (requests === undefined) return { cpuMillis: 0, memoryBytes: 0 };
  return {
    cpuMillis: requests.cpuMillis ?? 0,
    memoryBytes: Number(requests.memoryBytes ?? 0n),
    storageBytes: Number(requests.storageBytes),
    bandwidthBps: Number(requests.bandwidthBps),
    gpus: requests.gpus,
    ...withCustom(requests.custom),
  };
}

/** Returns the field `custom`; without the field for the many templates that ask for none. */
function withCustom(custom: Readonly<Record<string, bigint>>): Pick<ResourceAmounts, 'custom'> {
  const entries = Object.entries(custom);
  if (entries.length === 0) return {};
  return { custom: Object.fromEntries(entries.map(([name, amount]) => [name, toAmount(amount)])) };
}

/** Replaces impossible amounts by the nearest possible ones, as agents are not trusted input. */
function toAmounts(capacity: NodeCapacity | undefined): ResourceAmounts {
  return {
    cpuMillis: toAmount(capacity?.cpuMillis),
    memoryBytes: toAmount(capacity?.memoryBytes),
    storageBytes: toAmount(capacity?.storageBytes),
    bandwidthBps: toAmount(capacity?.bandwidthBps),
    gpus: toAmount(capacity?.gpus),
    ...withCustom(capacity?.custom ?? {}),
  };
}

function toReserved(reserved: NodeCapacity | undefined) {
  return {
    cpuMillis: toAmount(reserved?.cpuMillis),
    memoryBytes: toAmount(reserved?.memoryBytes),
    storageBytes: toAmount(reserved?.storageBytes),
  };
}

function toAmount(value: number | bigint | undefined): number {
  return Math.min(Number.MAX_SAFE_INTEGER, Math.max(0, Number(value ?? 0)));
}

/**
 * Converts a toleration for the placement of a new replica. A NO_EXECUTE taint that is tolerated
 * only for a time keeps new replicas away, as they would have to leave again.
 */
function toPlacingTolerations(toleration: ApiToleration): readonly Toleration[] {
  const converted = toToleration(toleration);
  if (toleration.tolerationPeriod === undefined) return [converted];
  if (toleration.effect !== undefined) return [];
  return [
    { ...converted, effect: 'NoSchedule' },
    { ...converted, effect: 'PreferNoSchedule' },
  ];
}

function toRequirement({ key, operator, values }: ApiRequirement): LabelRequirement {
  return { key, operator: operators[operator], ...(values.length > 0 ? { values } : {}) };
}

function toTermMode(
  weight: number,
): { readonly mode: 'required' } | { readonly mode: 'preferred'; readonly weight: number } {
  return weight === 0 ? { mode: 'required' } : { mode: 'preferred', weight };
}

function toNodeTerm(term: Affinity_NodeTerm): NodeTerm {
  return { ...toTermMode(term.weight), requirements: term.match.map(toRequirement) };
}

function toWorkloadTerm(term: Affinity_WorkloadTerm): WorkloadTerm {
  return {
    ...toTermMode(term.weight),
    selector: term.match.map(toRequirement),
    topology: term.topology === '' ? 'node' : term.topology,
    namespaces: term.namespaces,
  };
}
