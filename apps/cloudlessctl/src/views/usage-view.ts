import type { ContainerUse, Node } from '@cloudless/api';
import { formatAge, formatBytes, formatCpu } from '../output/human.js';
import type { Style } from '../output/style.js';
import { formatTable } from '../output/table.js';
import type { Column } from '../output/table.js';
import { formatReservedShare } from './node-view.js';

/**
 * Resource usage of all replicas of one workload. `-o json` prints this object, so the names of the
 * fields are part of the interface.
 */
export interface WorkloadUsage {
  readonly namespace: string;
  readonly name: string;
  readonly replicas: number;
  /** Number of replicas with a measured CPU usage. */
  readonly measuredReplicas: number;
  /** Sums over the replicas with a measurement. A field without any measurement is absent. */
  readonly cpuMillis?: number;
  readonly memoryWorkingSetBytes?: number;
  readonly ioReadBytesPerSecond?: number;
  readonly ioWriteBytesPerSecond?: number;
  readonly networkReceivedBytesPerSecond?: number;
  readonly networkSentBytesPerSecond?: number;
  readonly pidsCurrent?: number;
  /** Sums over all replicas. */
  readonly cpuRequestMillis: number;
  readonly memoryRequestBytes: number;
  /** Sums over all replicas; absent when one of the replicas has no limit. */
  readonly cpuLimitMillis?: number;
  readonly memoryLimitBytes?: number;
}

/** Sums the usage of replicas by workload. Replicas that are not measured yet count as replicas. */
export function sumByWorkload(containers: readonly ContainerUse[]): readonly WorkloadUsage[] {
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
        SUMMED.flatMap((key) => toEntry(key, sumKnown(uses.map((use) => use[key])))),
      ),
      cpuRequestMillis: sumAll(uses.map(({ cpuRequestMillis }) => cpuRequestMillis)),
      memoryRequestBytes: sumAll(uses.map(({ memoryRequestBytes }) => memoryRequestBytes)),
      ...sumLimits(uses),
    };
  });
}

/** The usage fields that are rates, in the order of the columns. */
const PER_SECOND = [
  'ioReadBytesPerSecond',
  'ioWriteBytesPerSecond',
  'networkReceivedBytesPerSecond',
  'networkSentBytesPerSecond',
] as const;
/** The usage fields that are summed by workload. */
const SUMMED = ['cpuMillis', 'memoryWorkingSetBytes', 'pidsCurrent', ...PER_SECOND] as const;

function sumLimits(
  uses: readonly ContainerUse[],
): Pick<WorkloadUsage, 'cpuLimitMillis' | 'memoryLimitBytes'> {
  const cpu = uses.flatMap(({ cpuLimitMillis }) => cpuLimitMillis ?? []);
  const memory = uses.flatMap(({ memoryLimitBytes }) => memoryLimitBytes ?? []);
  return {
    ...(cpu.length < uses.length ? {} : { cpuLimitMillis: sumAll(cpu) }),
    ...(memory.length < uses.length ? {} : { memoryLimitBytes: sumAll(memory) }),
  };
}

const toEntry = (key: string, value: number | undefined) =>
  value === undefined ? [] : [[key, value] as const];

/** Sums the defined values; undefined when there is none. */
function sumKnown(values: readonly (number | bigint | undefined)[]): number | undefined {
  const known = values.filter((value) => value !== undefined);
  return known.length === 0 ? undefined : sumAll(known);
}

const sumAll = (values: readonly (number | bigint)[]): number =>
  values.reduce<number>((sum, value) => sum + Number(value), 0);

/** Sort key of {@link sortByUsage}. */
export interface UsageKey {
  readonly name: string;
  readonly cpuMillis?: number | bigint | undefined;
  readonly memoryBytes?: number | bigint | undefined;
}

/**
 * Sorts by CPU usage, then memory usage, highest first, then by name. Items without a measurement
 * come last.
 */
export function sortByUsage<Item>(
  items: readonly Item[],
  toKey: (item: Item) => UsageKey,
): readonly Item[] {
  const keyed = items.map((item) => ({ item, key: toKey(item) }));
  const compareDescending = (a: number | bigint = -1, b: number | bigint = -1): number =>
    Number(b) - Number(a);
  keyed.sort(
    ({ key: a }, { key: b }) =>
      compareDescending(a.cpuMillis, b.cpuMillis) ||
      compareDescending(a.memoryBytes, b.memoryBytes) ||
      (a.name < b.name ? -1 : 1),
  );
  return keyed.map(({ item }) => item);
}

/**
 * Formats the usage of nodes: measured usage with its share of the capacity, and the resources that
 * replicas reserve of the resources available for workloads.
 */
export function formatNodeUsageTable(nodes: readonly Node[], style: Style): string {
  return formatTable(
    [
      'NAME',
      'CPU',
      'CPU%',
      { header: 'RESERVED', dropOrder: 2 },
      'MEMORY',
      'MEMORY%',
      { header: 'RESERVED', dropOrder: 3 },
      { header: 'REPLICAS', dropOrder: 1 },
    ],
    nodes.map(({ id, status }) => {
      const { usage, capacity } = status ?? {};
      return [
        id,
        formatOptionalCpu(usage?.cpuMillis),
        formatPercent(usage?.cpuMillis, capacity?.cpuMillis),
        formatReservedShare(status, 'cpu'),
        formatOptionalBytes(usage?.memoryBytes),
        formatPercent(usage?.memoryBytes, capacity?.memoryBytes),
        formatReservedShare(status, 'memory'),
        String(status?.replicaCount ?? 0),
      ];
    }),
    style,
  );
}

/** Formats the usage of workloads. The column REPLICAS shows measured and all replicas: `2/3`. */
export function formatWorkloadUsageTable(
  uses: readonly WorkloadUsage[],
  style: Style,
  wide: boolean,
): string {
  return formatTable(
    [
      { header: 'NAMESPACE', dropOrder: 5 },
      'NAME',
      { header: 'REPLICAS', dropOrder: 4 },
      ...USAGE_COLUMNS,
      ...(wide ? RATE_HEADERS : []),
    ],
    uses.map((use) => [
      use.namespace,
      use.name,
      `${use.measuredReplicas}/${use.replicas}`,
      ...toUsageCells(use),
      ...(wide ? toRateCells(use) : []),
    ]),
    style,
    { wide },
  );
}

/**
 * Formats the usage of replicas.
 * @param wide - True adds rates, throttling, the age of the measurement and the container id.
 */
export function formatReplicaUsageTable(
  uses: readonly ContainerUse[],
  nowMs: number,
  style: Style,
  wide: boolean,
): string {
  const wideHeaders = [...RATE_HEADERS, 'THROTTLED', 'MEASURED', 'CONTAINER'];
  return formatTable(
    [
      { header: 'NAMESPACE', dropOrder: 5 },
      { header: 'WORKLOAD', fit: 'shorten' },
      'REPLICA',
      { header: 'NODE', dropOrder: 4, fit: 'shorten' },
      ...USAGE_COLUMNS,
      ...(wide ? wideHeaders : []),
    ],
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
      const wideCells = [
        ...toRateCells(use),
        throttled,
        age,
        containerId.slice(0, SHORT_ID_LENGTH),
      ];
      return [
        namespace,
        workload,
        replicaId,
        nodeId,
        ...toUsageCells(use),
        ...(wide ? wideCells : []),
      ];
    }),
    style,
    { wide },
  );
}

/** Number of digits of a container id in a table. */
const SHORT_ID_LENGTH = 12;
const USAGE_COLUMNS: readonly (Column | string)[] = [
  'CPU',
  { header: 'REQUEST/LIMIT', dropOrder: 2 },
  'MEMORY',
  { header: 'REQUEST/LIMIT', dropOrder: 3 },
  { header: 'PIDS', dropOrder: 1 },
];
const RATE_HEADERS = ['READ', 'WRITTEN', 'RECEIVED', 'SENT'];

type AnyUsage = ContainerUse | WorkloadUsage;

const toUsageCells = (use: AnyUsage): readonly string[] => [
  formatOptionalCpu(use.cpuMillis),
  `${formatOptionalCpu(use.cpuRequestMillis)}/${formatOptionalCpu(use.cpuLimitMillis) || '-'}`,
  formatOptionalBytes(use.memoryWorkingSetBytes),
  `${formatOptionalBytes(use.memoryRequestBytes)}/${formatOptionalBytes(use.memoryLimitBytes) || '-'}`,
  use.pidsCurrent === undefined ? '' : String(use.pidsCurrent),
];

const toRateCells = (use: AnyUsage): readonly string[] =>
  PER_SECOND.map((key) => {
    const rate = use[key];
    return rate === undefined ? '' : `${formatOptionalBytes(Math.round(rate))}/s`;
  });

/** Formats an amount of CPU; empty when the amount is unknown. */
const formatOptionalCpu = (millis: number | bigint | undefined): string =>
  millis === undefined ? '' : formatCpu(Number(millis));
const formatOptionalBytes = (amount: number | bigint | undefined): string =>
  amount === undefined ? '' : formatBytes(BigInt(amount));

/** Formats a share in per cent; empty when one of the amounts is unknown. */
function formatPercent(
  used: number | bigint | undefined,
  total: number | bigint | undefined,
): string {
  return used === undefined || total === undefined || Number(total) === 0
    ? ''
    : `${Math.round((Number(used) * 100) / Number(total))}%`;
}
