import type { NodeId } from '@cloudless/base';
import { toLabelMap, type LabelMap, type Labels } from './labels.js';
import { compareText } from './order.js';
import { Problems } from './problems.js';
import {
  atLeastNothing,
  checkAmounts,
  minus,
  toResources,
  type ResourceAmounts,
  type Resources,
} from './resources.js';
import { checkTaints, describeTaint, type Taint } from './taints.js';

/** A machine as the scheduler sees it. */
export interface SchedulerNode {
  readonly id: NodeId;
  /** Absent or empty: not known. Such a node misses every region that is asked for. */
  readonly region?: string;
  /**
   * Named within its region: zone `a` of `eu` is another one than zone `a` of `us`. Absent or
   * empty: not known.
   */
  readonly zone?: string;
  readonly labels?: Labels;
  readonly taints?: readonly Taint[];
  /** All the machine has. */
  readonly capacity: ResourceAmounts;
  /** What of it is kept for the system and never booked. Default nothing. */
  readonly systemReserved?: Pick<Resources, 'cpuMillis' | 'memoryBytes'>;
  /** How many replicas at most, leaving ones included. Default {@link DEFAULT_MAX_REPLICAS}. */
  readonly maxReplicas?: number;
  /** What its runtimes can do, as in `runtime.process` or `limits.memory`. */
  readonly capabilities?: readonly string[];
  /**
   * Capabilities that do not work for now: no new replica that needs one is placed here, and
   * running ones stay. Default none.
   */
  readonly suspendedCapabilities?: readonly string[];
  /** Troubles that cost score and exclude nothing. Default none. */
  readonly conditions?: Partial<NodeConditions>;
  /**
   * How reliable it was of late, 0 to 1; quantised by the caller, so that scores do not flicker.
   * Default 1.
   */
  readonly reliability?: number;
  /** Why it takes nothing new. Each may hold at the same time; default none. */
  readonly availability?: Partial<NodeAvailability>;
}

/** What the node reports about itself. */
export interface NodeConditions {
  readonly memoryPressure: boolean;
  readonly diskPressure: boolean;
  readonly networkUnavailable: boolean;
}

/**
 * Separate facts with separate owners: a node may be cordoned by a person and lost by itself. Any
 * of them excludes it.
 */
export interface NodeAvailability {
  /** Its lease has ended. */
  readonly lost: boolean;
  /** Its replicas are being moved away. */
  readonly draining: boolean;
  /** A person has closed it for new replicas. */
  readonly cordoned: boolean;
  /** It flapped and gets nothing new for a while. */
  readonly quarantined: boolean;
}

/** The availability fact that is reported when several hold: the gravest first. */
export const AVAILABILITY_ORDER = [
  'lost',
  'draining',
  'cordoned',
  'quarantined',
] as const satisfies readonly (keyof NodeAvailability)[];

/** Replicas per node unless the node says otherwise. */
export const DEFAULT_MAX_REPLICAS = 110;

/** A node made ready for looking at it often; never changed, so that clones share it. */
export interface NodeRecord {
  readonly node: SchedulerNode;
  readonly id: NodeId;
  readonly region: string;
  readonly zone: string;
  readonly labels: LabelMap;
  /** Sorted by their text. */
  readonly taints: readonly Taint[];
  readonly capabilities: ReadonlySet<string>;
  readonly suspendedCapabilities: ReadonlySet<string>;
  readonly capacity: Resources;
  readonly systemReserved: Resources;
  /** Capacity without what is kept for the system. */
  readonly allocatable: Resources;
  readonly maxReplicas: number;
  readonly conditions: NodeConditions;
  readonly reliability: number;
  readonly unavailable: keyof NodeAvailability | undefined;
}

/**
 * @throws InvalidInputError for an empty id, amounts that are no whole numbers, reliability outside
 * 0 to 1, broken taints.
 */
export function toNodeRecord(node: SchedulerNode): NodeRecord {
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
    suspendedCapabilities: new Set(node.suspendedCapabilities),
    capacity,
    systemReserved,
    allocatable: atLeastNothing(minus(capacity, systemReserved)),
    maxReplicas: node.maxReplicas ?? DEFAULT_MAX_REPLICAS,
    conditions: {
      memoryPressure: false,
      diskPressure: false,
      networkUnavailable: false,
      ...node.conditions,
    },
    reliability: node.reliability ?? 1,
    unavailable: AVAILABILITY_ORDER.find((fact) => node.availability?.[fact] === true),
  };
}

/**
 * The domain a node is in: `node`, `zone` and `region` are well known, any other key is a label.
 * @returns undefined when the node has no such label, or its zone or region is not known: it is in
 *   no domain then.
 */
export function domainOf(record: NodeRecord, topology: string): string | undefined {
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

/** The zone within its region; nodes of unknown zone share one zone per region. */
export function zoneKeyOf(record: NodeRecord): string {
  return `${record.region}\u0000${record.zone}`;
}

/** The domain for people; for a node in none of them: `no zone`. */
export function describeDomain(record: NodeRecord, topology: string): string {
  const domain = domainOf(record, topology);
  if (domain === undefined) return `no ${topology}`;
  return topology === 'zone' ? `zone ${record.zone}` : `${topology} ${domain}`;
}

function checkNode(node: SchedulerNode): void {
  const problems = new Problems();
  problems.notEmpty('id', node.id);
  checkAmounts(problems, 'capacity', node.capacity);
  if (node.systemReserved !== undefined)
    checkAmounts(problems, 'systemReserved', node.systemReserved);
  if (node.maxReplicas !== undefined) problems.wholeNumber('maxReplicas', node.maxReplicas, 0);
  const { reliability = 1 } = node;
  if (!(reliability >= 0 && reliability <= 1))
    problems.note('reliability', `must be from 0 to 1, is ${reliability}`);
  checkTaints(problems, 'taints', node.taints ?? []);
  problems.throwIfAny();
}
