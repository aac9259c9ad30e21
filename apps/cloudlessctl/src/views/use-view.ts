import type { ContainerUse, Node } from '@cloudless/api';
import { formatAge, formatBytes, formatCpu } from '../output/human.js';
import { formatTable } from '../output/table.js';
import { reservedShare } from './node-view.js';

/** Resource usage of all replicas of one workload. */
export interface WorkloadUse {
  readonly namespace: string;
  readonly name: string;
  readonly replicas: number;
  /**
   * Number of replicas with a measured CPU usage. The usage fields below are sums over these
   * replicas.
   */
  readonly measuredReplicas: number;
  /** Absent when no replica was measured. */
  readonly cpuMillis?: number;
  readonly memoryWorkingSetBytes?: number;
  readonly ioReadBytesPerSecond?: number;
  readonly ioWriteBytesPerSecond?: number;
  readonly networkReceivedBytesPerSecond?: number;
  readonly networkSentBytesPerSecond?: number;
  readonly pidsCurrent?: number;
  /** Sum over all replicas. */
  readonly cpuRequestMillis: number;
  readonly memoryRequestBytes: number;
  /** Absent when one of the replicas has no limit. */
  readonly cpuLimitMillis?: number;
  readonly memoryLimitBytes?: number;
}

/** Sums the usage of replicas by workload. */
export function sumByWorkload(containers: readonly ContainerUse[]): readonly WorkloadUse[] {
  const byWorkload = new Map<string, ContainerUse[]>();
  for (const use of containers) {
    const key = `${use.namespace}/${use.workload}`;
    byWorkload.set(key, [...(byWorkload.get(key) ?? []), use]);
  }
  return [...byWorkload.values()].map((uses) => {
    const { namespace = '', workload = '' } = uses[0] ?? {};
    return {
      namespace,
      name: workload,
      replicas: uses.length,
      measuredReplicas: uses.filter(({ cpuMillis }) => cpuMillis !== undefined).length,
      ...Object.fromEntries(
        SUMMED.flatMap((key) => known(key, sumKnown(uses.map((use) => use[key])))),
      ),
      cpuRequestMillis: total(uses.map(({ cpuRequestMillis }) => cpuRequestMillis)),
      memoryRequestBytes: total(uses.map(({ memoryRequestBytes }) => memoryRequestBytes)),
      ...limitsOf(uses),
    };
  });
}

const PER_SECOND = [
  'ioReadBytesPerSecond',
  'ioWriteBytesPerSecond',
  'networkReceivedBytesPerSecond',
  'networkSentBytesPerSecond',
] as const;
const SUMMED = ['cpuMillis', 'memoryWorkingSetBytes', 'pidsCurrent', ...PER_SECOND] as const;

function limitsOf(
  uses: readonly ContainerUse[],
): Pick<WorkloadUse, 'cpuLimitMillis' | 'memoryLimitBytes'> {
  const cpu = uses.flatMap(({ cpuLimitMillis }) => cpuLimitMillis ?? []);
  const memory = uses.flatMap(({ memoryLimitBytes }) => memoryLimitBytes ?? []);
  return {
    ...(cpu.length < uses.length ? {} : { cpuLimitMillis: total(cpu) }),
    ...(memory.length < uses.length ? {} : { memoryLimitBytes: total(memory) }),
  };
}

const known = (key: string, value: number | undefined) =>
  value === undefined ? [] : [[key, value] as const];

/** Sums the defined values; undefined when there is none. */
function sumKnown(values: readonly (number | bigint | undefined)[]): number | undefined {
  const there = values.filter((value) => value !== undefined);
  return there.length === 0 ? undefined : total(there);
}

const total = (values: readonly (number | bigint)[]): number =>
  values.reduce<number>((sum, value) => sum + Number(value), 0);

/** Sort key of {@link busiestFirst}. */
export interface Busyness {
  readonly name: string;
  readonly cpuMillis?: number | bigint | undefined;
  readonly memoryBytes?: number | bigint | undefined;
}

/**
 * Sorts by CPU usage, then memory usage, highest first, then by name. Items without a measurement
 * come last.
 */
export function busiestFirst<Item>(
  items: readonly Item[],
  of: (item: Item) => Busyness,
): readonly Item[] {
  const keyed = items.map((item) => ({ item, key: of(item) }));
  const more = (a: number | bigint = -1, b: number | bigint = -1): number => Number(b) - Number(a);
  keyed.sort(
    ({ key: a }, { key: b }) =>
      more(a.cpuMillis, b.cpuMillis) ||
      more(a.memoryBytes, b.memoryBytes) ||
      (a.name < b.name ? -1 : 1),
  );
  return keyed.map(({ item }) => item);
}

/**
 * Formats the usage of nodes: usage of the capacity, and reservations of what is available for
 * workloads.
 */
export function nodeUseTable(nodes: readonly Node[]): string {
  return formatTable(
    ['NAME', 'CPU', 'CPU%', 'RESERVED', 'MEMORY', 'MEMORY%', 'RESERVED', 'REPLICAS'],
    nodes.map(({ id, status }) => {
      const { usage, capacity } = status ?? {};
      return [
        id,
        cpu(usage?.cpuMillis),
        percent(usage?.cpuMillis, capacity?.cpuMillis),
        reservedShare(status, 'cpu'),
        bytes(usage?.memoryBytes),
        percent(usage?.memoryBytes, capacity?.memoryBytes),
        reservedShare(status, 'memory'),
        String(status?.replicaCount ?? 0),
      ];
    }),
  );
}

/** Formats the usage of workloads. The column REPLICAS shows measured replicas of all replicas. */
export function workloadUseTable(uses: readonly WorkloadUse[], wide: boolean): string {
  return formatTable(
    ['NAMESPACE', 'NAME', 'REPLICAS', ...USE_HEADERS, ...(wide ? RATE_HEADERS : [])],
    uses.map((use) => [
      use.namespace,
      use.name,
      `${use.measuredReplicas}/${use.replicas}`,
      ...useCells(use),
      ...(wide ? rateCells(use) : []),
    ]),
  );
}

/** Formats the usage of replicas. */
export function replicaUseTable(
  uses: readonly ContainerUse[],
  nowMs: number,
  wide: boolean,
): string {
  const extra = [...RATE_HEADERS, 'THROTTLED', 'MEASURED', 'CONTAINER'];
  return formatTable(
    ['NAMESPACE', 'WORKLOAD', 'REPLICA', 'NODE', ...USE_HEADERS, ...(wide ? extra : [])],
    uses.map((use) => {
      const {
        namespace,
        workload,
        replicaId,
        nodeId,
        containerId,
        throttledPeriodsRatio,
        sampledAt,
      } = use;
      const throttled =
        throttledPeriodsRatio === undefined ? '' : `${Math.round(throttledPeriodsRatio * 100)}%`;
      const age = sampledAt === undefined ? '' : `${formatAge(sampledAt, nowMs)} ago`;
      const more = [...rateCells(use), throttled, age, containerId.slice(0, SHORT_ID)];
      return [namespace, workload, replicaId, nodeId, ...useCells(use), ...(wide ? more : [])];
    }),
  );
}

const SHORT_ID = 12;
const USE_HEADERS = ['CPU', 'REQUEST/LIMIT', 'MEMORY', 'REQUEST/LIMIT', 'PIDS'];
const RATE_HEADERS = ['READ', 'WRITTEN', 'RECEIVED', 'SENT'];

type AnyUse = ContainerUse | WorkloadUse;

const useCells = (use: AnyUse): readonly string[] => [
  cpu(use.cpuMillis),
  `${cpu(use.cpuRequestMillis)}/${cpu(use.cpuLimitMillis) || '-'}`,
  bytes(use.memoryWorkingSetBytes),
  `${bytes(use.memoryRequestBytes)}/${bytes(use.memoryLimitBytes) || '-'}`,
  use.pidsCurrent === undefined ? '' : String(use.pidsCurrent),
];

const rateCells = (use: AnyUse): readonly string[] =>
  PER_SECOND.map((key) => {
    const rate = use[key];
    return rate === undefined ? '' : `${bytes(Math.round(rate))}/s`;
  });

/** Formats a CPU usage; empty when it is unknown. */
const cpu = (millis: number | bigint | undefined): string =>
  millis === undefined ? '' : formatCpu(Number(millis));
const bytes = (amount: number | bigint | undefined): string =>
  amount === undefined ? '' : formatBytes(BigInt(amount));

function percent(used: number | bigint | undefined, of: number | bigint | undefined): string {
  return used === undefined || of === undefined || Number(of) === 0
    ? ''
    : `${Math.round((Number(used) * 100) / Number(of))}%`;
}
