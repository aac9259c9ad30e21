import { Condition_Type, NodeStatus_Phase, Taint_Effect } from '@cloudless/api';
import type { Node, NodeStatus, Taint } from '@cloudless/api';
import { formatAge, formatBytes, formatCpu, formatLabels, formatWord } from '../output/human.js';
import { getToneColour } from '../output/style.js';
import type { Style } from '../output/style.js';
import { formatTable } from '../output/table.js';
import type { Cell, Column } from '../output/table.js';
import { formatDrainStatus } from './drain-view.js';

/**
 * Formats nodes as a table. CPU and MEMORY show the resources allocated to replicas and the
 * resources available for workloads: `250m/3500m`.
 * @param wide - True adds region, platform, agent, taints and labels.
 */
export function formatNodeTable(
  nodes: readonly Node[],
  nowMs: number,
  style: Style,
  wide: boolean,
): string {
  return formatTable(
    getNodeColumns(wide),
    nodes.map((node) => toNodeCells(node, nowMs, style, wide)),
    style,
    { wide },
  );
}

/** Returns the columns of a node table. */
export function getNodeColumns(wide: boolean): readonly (Column | string)[] {
  return [
    'NAME',
    { header: 'STATUS', fit: 'wrap', minWidth: 16, usualWidth: 'Ready,Cordoned'.length },
    { header: 'ZONE', dropOrder: 3 },
    { header: 'REPLICAS', dropOrder: 2 },
    { header: 'CPU', usualWidth: '1000m/16000m'.length },
    { header: 'MEMORY', usualWidth: '128Mi/15.5Gi'.length },
    { header: 'AGE', dropOrder: 1, usualWidth: '59m59s'.length },
    ...(wide ? WIDE_COLUMNS : []),
  ];
}

const WIDE_COLUMNS: readonly (Column | string)[] = [
  'REGION',
  'PLATFORM',
  'AGENT',
  'ADDRESS',
  { header: 'TAINTS', fit: 'wrap', minWidth: 16 },
  { header: 'LABELS', fit: 'wrap', minWidth: 16 },
];

/** Returns the table row of a node. */
export function toNodeCells(
  node: Node,
  nowMs: number,
  style: Style,
  wide: boolean,
): readonly (Cell | string)[] {
  const { status } = node;
  const extra = [
    node.region,
    formatPlatform(node),
    status?.agentVersion ?? '',
    status?.agentAddress ?? '',
    formatTaints(node.taints),
    formatLabels(node.labels),
  ];
  return [
    node.id,
    toStatusCell(node, style),
    node.zone,
    `${status?.replicaCount ?? 0}/${status?.maxReplicas ?? 0}`,
    formatReservedShare(status, 'cpu'),
    formatReservedShare(status, 'memory'),
    formatAge(node.createdAt, nowMs),
    ...(wide ? extra : []),
  ];
}

/** Formats taints as `key=value:NoSchedule`, separated by commas. */
export function formatTaints(taints: readonly Taint[]): string {
  return taints
    .map(
      ({ key, value, effect }) =>
        `${key}${value === '' ? '' : `=${value}`}:${formatWord(Taint_Effect[effect] ?? '')}`,
    )
    .join(',');
}

/**
 * Formats the resources allocated to replicas and the resources available for workloads, which are
 * the capacity without the system reservation: `250m/3500m`. Empty without a capacity.
 */
export function formatReservedShare(
  status: NodeStatus | undefined,
  resource: 'cpu' | 'memory',
): string {
  const { allocated, capacity, reserved } = status ?? {};
  if (capacity === undefined) return '';
  if (resource === 'cpu')
    return `${formatCpu(allocated?.cpuMillis ?? 0)}/${formatCpu(capacity.cpuMillis - (reserved?.cpuMillis ?? 0))}`;
  return `${formatBytes(allocated?.memoryBytes ?? 0n)}/${formatBytes(capacity.memoryBytes - (reserved?.memoryBytes ?? 0n))}`;
}

/** Formats operating system and architecture: `linux/amd64`. */
export function formatPlatform({ status }: Node): string {
  return [status?.operatingSystem ?? '', status?.architecture ?? '']
    .filter((part) => part !== '')
    .join('/');
}

/** Returns the words for cordon and drain. A draining node is always cordoned. */
function listDrainStatuses({ status, cordoned, draining }: Node): readonly string[] {
  const drainStatus = formatDrainStatus(status?.drain);
  if (draining) return [drainStatus ?? 'Draining'];
  return [...(cordoned ? ['Cordoned'] : []), ...(drainStatus === undefined ? [] : [drainStatus])];
}

/** Formats phase, drain status and pressure conditions: `Ready,Cordoned`. */
export function formatStatus(node: Node): string {
  const { status } = node;
  const phase = formatWord(NodeStatus_Phase[status?.phase ?? NodeStatus_Phase.UNKNOWN] ?? '');
  const pressures = (status?.conditions ?? []).filter(
    ({ type, status: isTrue }) => isTrue && type !== Condition_Type.READY,
  );
  return [
    phase,
    ...listDrainStatuses(node),
    ...pressures.map(({ type }) => formatWord(Condition_Type[type] ?? '')),
  ].join(',');
}

function toStatusCell(node: Node, style: Style): Cell {
  const phase = node.status?.phase ?? NodeStatus_Phase.UNKNOWN;
  const text = formatStatus(node);
  const tone = phase === NodeStatus_Phase.LOST ? 'bad' : text === 'Ready' ? 'good' : 'busy';
  return { text, paint: getToneColour(style, tone) };
}
