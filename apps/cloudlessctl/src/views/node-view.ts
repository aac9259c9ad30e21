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
import { toneOf } from '../output/style.js';
import type { Style } from '../output/style.js';
import { formatTable } from '../output/table.js';
import type { Cell } from '../output/table.js';
import { drainText, drainWord } from './drain-view.js';
import { eventTable } from './event-view.js';
import { formatFields, formatSections } from './sections.js';

/**
 * Formats nodes as a table. CPU and MEMORY show what is allocated, of what is available for
 * workloads.
 */
export function nodeTable(
  nodes: readonly Node[],
  nowMs: number,
  style: Style,
  wide: boolean,
): string {
  return formatTable(
    nodeHeaders(wide),
    nodes.map((node) => nodeCells(node, nowMs, style, wide)),
  );
}

/** Returns the headers of a node table. */
export function nodeHeaders(wide: boolean): readonly string[] {
  const extra = ['REGION', 'PLATFORM', 'AGENT', 'ADDRESS', 'TAINTS', 'LABELS'];
  return ['NAME', 'STATUS', 'ZONE', 'REPLICAS', 'CPU', 'MEMORY', 'AGE', ...(wide ? extra : [])];
}

/** Returns the table row of a node. */
export function nodeCells(
  node: Node,
  nowMs: number,
  style: Style,
  wide: boolean,
): readonly (Cell | string)[] {
  const { status } = node;
  const extra = [
    node.region,
    platformOf(node),
    status?.agentVersion ?? '',
    status?.agentAddress ?? '',
    formatTaints(node.taints),
    formatLabels(node.labels),
  ];
  return [
    node.id,
    statusCell(node, style),
    node.zone,
    `${status?.replicaCount ?? 0}/${status?.maxReplicas ?? 0}`,
    reservedShare(status, 'cpu'),
    reservedShare(status, 'memory'),
    formatAge(node.createdAt, nowMs),
    ...(wide ? extra : []),
  ];
}

/** Formats the description of a node in sections. */
export function describeNodeText(
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
        ['Phase', statusText(node)],
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
        ['Platform', platformOf(node)],
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
    ['Drain', drainText(status?.drain, nowMs)],
    ['Resources', resourceTable(node)],
    ['Events', eventTable(events, nowMs, style) || '(none)\n'],
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

function resourceTable({ status }: Node): string {
  if (status === undefined) return '';
  const { capacity, reserved, allocated, usage } = status;
  const bytes = (value: bigint | undefined): string =>
    value === undefined ? '' : formatBytes(value);
  const cpu = (value: number | undefined): string => (value === undefined ? '' : formatCpu(value));
  return formatTable(
    ['RESOURCE', 'CAPACITY', 'SYSTEM', 'ALLOCATED', 'MEASURED USE'],
    [
      [
        'cpu',
        cpu(capacity?.cpuMillis),
        cpu(reserved?.cpuMillis),
        cpu(allocated?.cpuMillis),
        cpu(usage?.cpuMillis),
      ],
      [
        'memory',
        bytes(capacity?.memoryBytes),
        bytes(reserved?.memoryBytes),
        bytes(allocated?.memoryBytes),
        bytes(usage?.memoryBytes),
      ],
      [
        'storage',
        bytes(capacity?.storageBytes),
        bytes(reserved?.storageBytes),
        bytes(allocated?.storageBytes),
        bytes(usage?.storageBytes),
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
export function reservedShare(status: NodeStatus | undefined, what: 'cpu' | 'memory'): string {
  const { allocated, capacity, reserved } = status ?? {};
  if (capacity === undefined) return '';
  if (what === 'cpu')
    return `${formatCpu(allocated?.cpuMillis ?? 0)}/${formatCpu(capacity.cpuMillis - (reserved?.cpuMillis ?? 0))}`;
  return `${formatBytes(allocated?.memoryBytes ?? 0n)}/${formatBytes(capacity.memoryBytes - (reserved?.memoryBytes ?? 0n))}`;
}

function platformOf({ status }: Node): string {
  return [status?.operatingSystem ?? '', status?.architecture ?? '']
    .filter((part) => part !== '')
    .join('/');
}

function drainWords({ status, cordoned, draining }: Node): readonly string[] {
  const word = drainWord(status?.drain);
  if (draining) return [word ?? 'Draining'];
  return [...(cordoned ? ['Cordoned'] : []), ...(word === undefined ? [] : [word])];
}

function statusText(node: Node): string {
  const { status } = node;
  const phase = formatWord(NodeStatus_Phase[status?.phase ?? NodeStatus_Phase.UNKNOWN] ?? '');
  const pressures = (status?.conditions ?? []).filter(
    ({ type, status: holds }) => holds && type !== Condition_Type.READY,
  );
  return [
    phase,
    ...drainWords(node),
    ...pressures.map(({ type }) => formatWord(Condition_Type[type] ?? '')),
  ].join(',');
}

function statusCell(node: Node, style: Style): Cell {
  const phase = node.status?.phase ?? NodeStatus_Phase.UNKNOWN;
  const text = statusText(node);
  const tone = phase === NodeStatus_Phase.LOST ? 'bad' : text === 'Ready' ? 'good' : 'busy';
  return { text, paint: toneOf(style, tone) };
}
