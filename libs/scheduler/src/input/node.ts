import { isPathWithin, type NodeId } from '@cloudless/base';
import { compareText } from '../order.js';
import { toLabelMap, type LabelMap, type Labels } from './labels.js';
import { Problems } from './problems.js';
import {
  clampToZero,
  checkAmounts,
  subtractResources,
  toResources,
  type ResourceAmounts,
  type Resources,
} from './resources.js';
import { checkTaints, describeTaint, type Taint } from './taints.js';

/** A node as input of the scheduler. */
export interface SchedulerNode {
  readonly id: NodeId;
  /** Absent or empty: unknown. Such a node matches no requested region. */
  readonly region?: string;
  /**
   * Zone names are scoped to their region: zone `a` of `eu` differs from zone `a` of `us`. Absent
   * or empty: unknown.
   */
  readonly zone?: string;
  readonly labels?: Labels;
  readonly taints?: readonly Taint[];
  /** Resources of the whole machine. */
  readonly capacity: ResourceAmounts;
  /** Part of the capacity that is never given to replicas. Default: nothing. */
  readonly systemReserved?: Pick<Resources, 'cpuMillis' | 'memoryBytes'> &
    Partial<Pick<Resources, 'storageBytes'>>;
  /**
   * Largest number of replicas, including leaving replicas. Default: {@link DEFAULT_MAX_REPLICAS}.
   */
  readonly maxReplicas?: number;
  /** Capabilities of the node's runtimes, such as `runtime.process` or `limits.memory`. */
  readonly capabilities?: readonly string[];
  /**
   * Capabilities that are temporarily unavailable. No new replica that needs such a capability is
   * placed on the node; running replicas stay. Default: none.
   */
  readonly suspendedCapabilities?: readonly string[];
  /**
   * Why capabilities are suspended, for explanations: `the disk of the node is full`. Default: a
   * text that names the capability.
   */
  readonly suspensionReason?: string;
  /** Conditions that lower the score and exclude nothing. Default: none. */
  readonly conditions?: Partial<NodeConditions>;
  /**
   * Recent reliability from 0 to 1. The caller quantises the value so that scores do not change on
   * small differences. Default: 1.
   */
  readonly reliability?: number;
  /**
   * Conditions that exclude the node from new placements. Several may hold at the same time.
   * Default: none.
   */
  readonly availability?: Partial<NodeAvailability>;
}

/** Conditions that the node reports about itself. */
export interface NodeConditions {
  readonly memoryPressure: boolean;
  readonly diskPressure: boolean;
  readonly networkUnavailable: boolean;
}

/**
 * Independent conditions, several of which may be true at once: for example, an operator cordons a
 * node whose lease has ended. Each condition excludes the node.
 */
export interface NodeAvailability {
  /** The node's lease has ended. */
  readonly lost: boolean;
  /** The node is not lost, and its agent is not connected or does not answer. */
  readonly unreachable: boolean;
  /** The node's replicas are being replaced elsewhere. */
  readonly draining: boolean;
  /** An operator has excluded the node from new placements. */
  readonly cordoned: boolean;
  /** The node was lost repeatedly and receives no new replicas for a while. */
  readonly quarantined: boolean;
}

/** Order in which the availability conditions are reported, the gravest first. */
export const AVAILABILITY_ORDER = [
  'lost',
  'unreachable',
  'draining',
  'cordoned',
  'quarantined',
] as const satisfies readonly (keyof NodeAvailability)[];

const HOST_PATH_CAPABILITY = 'host-path.';

/** Largest number of replicas of a node without `maxReplicas`: the default of Kubernetes. */
export const DEFAULT_MAX_REPLICAS = 110;

/** A node with derived values for fast lookups. Immutable, so clones share it. */
export interface IndexedNode {
  readonly node: SchedulerNode;
  readonly id: NodeId;
  readonly region: string;
  readonly zone: string;
  readonly labels: LabelMap;
  /** Sorted by their text form. */
  readonly taints: readonly Taint[];
  readonly capabilities: ReadonlySet<string>;
  /**
   * Directories of the machine that containers may mount, with all their content. Empty for a node
   * whose agent names none: `volumes.hostpath` then stands for every path.
   */
  readonly hostPaths: readonly string[];
  readonly suspendedCapabilities: ReadonlySet<string>;
  readonly capacity: Resources;
  readonly systemReserved: Resources;
  /** Capacity minus the system reservation. */
  readonly allocatable: Resources;
  readonly maxReplicas: number;
  readonly conditions: NodeConditions;
  readonly reliability: number;
  /** The gravest condition that excludes the node from new placements. */
  readonly unavailable: keyof NodeAvailability | undefined;
}

/**
 * Indexes a node.
 * @throws InvalidInputError for an empty id, amounts that are not whole numbers, a reliability
 *   outside 0 to 1, or invalid taints.
 */
export function indexNode(node: SchedulerNode): IndexedNode {
  checkNode(node);
  const capacity = toResources(node.capacity);
  const systemReserved = toResources(node.systemReserved ?? { cpuMillis: 0, memoryBytes: 0 });
  return {
    node,
    id: node.id,
    region: node.region ?? '',
    zone: node.zone ?? '',
    labels: toLabelMap(node.labels),
    taints: [...(node.taints ?? [])].sort((a, b) =>
      compareText(describeTaint(a), describeTaint(b)),
    ),
    capabilities: new Set(node.capabilities),
    hostPaths: (node.capabilities ?? []).flatMap((name) => parseHostPath(name) ?? []).sort(),
    suspendedCapabilities: new Set(node.suspendedCapabilities),
    capacity,
    systemReserved,
    allocatable: clampToZero(subtractResources(capacity, systemReserved)),
    maxReplicas: node.maxReplicas ?? DEFAULT_MAX_REPLICAS,
    conditions: {
      memoryPressure: false,
      diskPressure: false,
      networkUnavailable: false,
      ...node.conditions,
    },
    reliability: node.reliability ?? 1,
    unavailable: AVAILABILITY_ORDER.find((condition) => node.availability?.[condition] === true),
  };
}

/** Returns the path in a capability such as `host-path./srv`; undefined for other capabilities. */
export function parseHostPath(capability: string): string | undefined {
  return capability.startsWith(HOST_PATH_CAPABILITY)
    ? capability.slice(HOST_PATH_CAPABILITY.length)
    : undefined;
}

/**
 * Returns true when a node has a capability. A node has `host-path.<path>` when the path is in a
 * directory that its agent allows. A node without any host paths lacks only `volumes.hostpath`.
 */
export function hasCapability(
  { capabilities, hostPaths }: Pick<IndexedNode, 'capabilities' | 'hostPaths'>,
  capability: string,
): boolean {
  if (capabilities.has(capability)) return true;
  const path = parseHostPath(capability);
  if (path === undefined) return false;
  return hostPaths.length === 0 || hostPaths.some((directory) => isPathWithin(path, directory));
}

/**
 * Returns the domain of a node. `node`, `zone` and `region` are built-in topologies; any other key
 * is a node label.
 * @returns undefined when the node has no such label, or its zone or region is unknown.
 */
export function domainOf(record: IndexedNode, topology: string): string | undefined {
  switch (topology) {
    case 'node':
      return record.id;
    case 'zone':
      return record.zone === '' ? undefined : zoneKeyOf(record);
    case 'region':
      return record.region === '' ? undefined : record.region;
    default:
      return record.labels.get(topology);
  }
}

/** Returns a key for the zone within its region. Nodes of unknown zone share a key per region. */
export function zoneKeyOf(record: IndexedNode): string {
  return `${record.region}\u0000${record.zone}`;
}

/** Formats the domain of a node for people; `no zone` for a node in no domain. */
export function describeDomain(record: IndexedNode, topology: string): string {
  const domain = domainOf(record, topology);
  if (domain === undefined) return `no ${topology}`;
  return topology === 'zone' ? `zone ${record.zone}` : `${topology} ${domain}`;
}

function checkNode(node: SchedulerNode): void {
  const problems = new Problems();
  problems.requireNotEmpty('id', node.id);
  checkAmounts(problems, 'capacity', node.capacity);
  if (node.systemReserved !== undefined)
    checkAmounts(problems, 'systemReserved', node.systemReserved);
  if (node.maxReplicas !== undefined)
    problems.requireWholeNumber('maxReplicas', node.maxReplicas, 0);
  const { reliability = 1 } = node;
  if (!(reliability >= 0 && reliability <= 1))
    problems.add('reliability', `must be from 0 to 1, is ${reliability}`);
  checkTaints(problems, 'taints', node.taints ?? []);
  problems.throwIfAny();
}
