import { Condition_Type, NodeStatus_Phase, Taint_Effect } from '@cloudless/api';
import type { Node, NodeStatus, Taint } from '@cloudless/api';
import { formatAge, formatBytes, formatCpu, formatLabels, formatWord } from '../output/human.js';
import { getTone } from '../output/style.js';
import type { Style } from '../output/style.js';
import { formatTable } from '../output/table.js';
import type { Cell } from '../output/table.js';
import { formatDrainStatus } from './drain-view.js';

/**
 * Formats nodes as a table. CPU and MEMORY show what is allocated, of what is available for
 * workloads.
 */
export function formatNodeTable(
  nodes: readonly Node[],
  nowMs: number,
  style: Style,
  wide: boolean,
): string {
  return formatTable(
    getNodeHeaders(wide),
    nodes.map((node) => toNodeCells(node, nowMs, style, wide)),
  );
}

/** Returns the headers of a node table. */
export function getNodeHeaders(wide: boolean): readonly string[] {
  const extra = ['REGION', 'PLATFORM', 'AGENT', 'ADDRESS', 'TAINTS', 'LABELS'];
  return ['NAME', 'STATUS', 'ZONE', 'REPLICAS', 'CPU', 'MEMORY', 'AGE', ...(wide ? extra : [])];
}

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

/** Formats taints as `key=value:NO_SCHEDULE`, separated by commas. */
export function formatTaints(taints: readonly Taint[]): string {
  return taints
    .map(
      ({ key, value, effect }) =>
        `${key}${value === '' ? '' : `=${value}`}:${Taint_Effect[effect]}`,
    )
    .join(',');
}

/** Formats what workloads have reserved, of what is available for them: `250m/3500m`. */
export function formatReservedShare(
  status: NodeStatus | undefined,
  what: 'cpu' | 'memory',
): string {
  const { allocated, capacity, reserved } = status ?? {};
  if (capacity === undefined) return '';
  if (what === 'cpu')
    return `${formatCpu(allocated?.cpuMillis ?? 0)}/${formatCpu(capacity.cpuMillis - (reserved?.cpuMillis ?? 0))}`;
  return `${formatBytes(allocated?.memoryBytes ?? 0n)}/${formatBytes(capacity.memoryBytes - (reserved?.memoryBytes ?? 0n))}`;
}

/** Formats operating system and architecture: `linux/amd64`. */
export function formatPlatform({ status }: Node): string {
  return [status?.operatingSystem ?? '', status?.architecture ?? '']
    .filter((part) => part !== '')
    .join('/');
}

function listDrainStatuses({ status, cordoned, draining }: Node): readonly string[] {
  const word = formatDrainStatus(status?.drain);
  if (draining) return [word ?? 'Draining'];
  return [...(cordoned ? ['Cordoned'] : []), ...(word === undefined ? [] : [word])];
}

/** Formats phase, drain status and pressure conditions: `Ready,Cordoned`. */
export function formatStatus(node: Node): string {
  const { status } = node;
  const phase = formatWord(NodeStatus_Phase[status?.phase ?? NodeStatus_Phase.UNKNOWN] ?? '');
  const pressures = (status?.conditions ?? []).filter(
    ({ type, status: holds }) => holds && type !== Condition_Type.READY,
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
  return { text, paint: getTone(style, tone) };
}
