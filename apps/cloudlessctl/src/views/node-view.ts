import { Condition_Type, NodeStatus_Phase, Taint_Effect } from '@cloudless/api';
import type { Event, Node, NodeStatus, Taint } from '@cloudless/api';
import {
  formatAge,
  formatBytes,
  formatCpu,
  formatLabels,
  formatTime,
  formatWord,
} from '../output/human.js';
import { getTone } from '../output/style.js';
import type { Style } from '../output/style.js';
import { formatTable } from '../output/table.js';
import type { Cell } from '../output/table.js';
import { formatDrainSection, formatDrainStatus } from './drain-view.js';
import { formatEventTable } from './event-view.js';
import { formatFields, formatSections } from './sections.js';

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

/** Formats the description of a node in sections. */
export function formatNodeDescription(
  node: Node,
  events: readonly Event[],
  nowMs: number,
  style: Style,
): string {
  const { status } = node;
  return formatSections(style, [
    [
      '',
      formatFields([
        ['Name', node.id],
        ['Region', node.region],
        ['Zone', node.zone],
        [
          'Created',
          node.createdAt === undefined
            ? ''
            : `${formatTime(node.createdAt)} (${formatAge(node.createdAt, nowMs)} ago)`,
        ],
        ['Labels', formatLabels(node.labels)],
        ['Taints', formatTaints(node.taints)],
      ]),
    ],
    [
      'Status',
      formatFields([
        ['Phase', formatStatus(node)],
        ['Reason', status?.reason ?? ''],
        [
          'Connected',
          status?.connectedSince === undefined
            ? ''
            : `for ${formatAge(status.connectedSince, nowMs)}`,
        ],
        [
          'Last seen',
          status?.lastSeen === undefined ? '' : `${formatAge(status.lastSeen, nowMs)} ago`,
        ],
        [
          'Reliability',
          status === undefined ? '' : `${(status.reliability * 100).toFixed(1)} % of the last hour`,
        ],
        ['Replicas', `${status?.replicaCount ?? 0} of at most ${status?.maxReplicas ?? 0}`],
        ['Capabilities', status?.capabilities.join(', ') ?? ''],
        ['Platform', formatPlatform(node)],
        [
          'Agent',
          [status?.agentVersion ?? '', status?.agentAddress ?? '']
            .filter((part) => part !== '')
            .join(' at '),
        ],
      ]),
    ],
    [
      'Conditions',
      formatTable(
        ['TYPE', 'STATUS', 'REASON'],
        (status?.conditions ?? []).map(({ type, status: holds, reason }) => [
          formatWord(Condition_Type[type] ?? ''),
          holds ? 'yes' : 'no',
          reason,
        ]),
      ),
    ],
    ['Drain', formatDrainSection(status?.drain, nowMs)],
    ['Resources', formatResourceTable(node)],
    ['Events', formatEventTable(events, nowMs, style) || '(none)\n'],
  ]);
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

function formatResourceTable({ status }: Node): string {
  if (status === undefined) return '';
  const { capacity, reserved, allocated, usage } = status;
  const formatOptionalBytes = (value: bigint | undefined): string =>
    value === undefined ? '' : formatBytes(value);
  const formatOptionalCpu = (value: number | undefined): string =>
    value === undefined ? '' : formatCpu(value);
  return formatTable(
    ['RESOURCE', 'CAPACITY', 'SYSTEM', 'ALLOCATED', 'MEASURED USE'],
    [
      [
        'cpu',
        formatOptionalCpu(capacity?.cpuMillis),
        formatOptionalCpu(reserved?.cpuMillis),
        formatOptionalCpu(allocated?.cpuMillis),
        formatOptionalCpu(usage?.cpuMillis),
      ],
      [
        'memory',
        formatOptionalBytes(capacity?.memoryBytes),
        formatOptionalBytes(reserved?.memoryBytes),
        formatOptionalBytes(allocated?.memoryBytes),
        formatOptionalBytes(usage?.memoryBytes),
      ],
      [
        'storage',
        formatOptionalBytes(capacity?.storageBytes),
        formatOptionalBytes(reserved?.storageBytes),
        formatOptionalBytes(allocated?.storageBytes),
        formatOptionalBytes(usage?.storageBytes),
      ],
      [
        'gpus',
        String(capacity?.gpus ?? 0),
        String(reserved?.gpus ?? 0),
        String(allocated?.gpus ?? 0),
        '',
      ],
    ],
  );
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

function formatPlatform({ status }: Node): string {
  return [status?.operatingSystem ?? '', status?.architecture ?? '']
    .filter((part) => part !== '')
    .join('/');
}

function listDrainStatuses({ status, cordoned, draining }: Node): readonly string[] {
  const word = formatDrainStatus(status?.drain);
  if (draining) return [word ?? 'Draining'];
  return [...(cordoned ? ['Cordoned'] : []), ...(word === undefined ? [] : [word])];
}

function formatStatus(node: Node): string {
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
