import { Condition_Type } from '@cloudless/api';
import type { Event, Node, NodeCapacity } from '@cloudless/api';
import {
  formatAge,
  formatBandwidth,
  formatBytes,
  formatCpu,
  formatLabels,
  formatWord,
} from '../output/human.js';
import { formatStyledTime, indentStyle } from '../output/style.js';
import type { Style } from '../output/style.js';
import { formatTable } from '../output/table.js';
import { formatDrainSection } from './drain-view.js';
import { formatEventTable } from './event-view.js';
import { SECTION_INDENT, formatFields, formatSections } from './sections.js';
import { formatNodeReplicas } from './replica-list-view.js';
import type { PlacedReplica } from './replica-list-view.js';
import { formatTaints, formatPlatform, formatStatus } from './node-view.js';

type Field = readonly [string, string];

/**
 * Formats the description of a node in sections.
 * @param replicas - The replicas on the node.
 */
export function formatNodeDescription(
  node: Node,
  replicas: readonly PlacedReplica[],
  events: readonly Event[],
  nowMs: number,
  style: Style,
): string {
  const indented = indentStyle(style, SECTION_INDENT);
  return formatSections(style, [
    ['', formatFields(getIdentityFields(node, nowMs, style))],
    ['Status', formatFields(getStatusFields(node, nowMs))],
    ['Conditions', formatConditions(node, indented)],
    ['Drain', formatDrainSection(node.status?.drain, nowMs, style)],
    ['Resources', formatResourceTable(node, indented)],
    ['Replicas', formatNodeReplicas(replicas, nowMs, indented) || '(none)\n'],
    ['Events', formatEventTable(events, nowMs, indented) || '(none)\n'],
  ]);
}

function getIdentityFields(node: Node, nowMs: number, style: Style): readonly Field[] {
  const { createdAt } = node;
  const created =
    createdAt === undefined
      ? ''
      : `${formatStyledTime(createdAt, style)} (${formatAge(createdAt, nowMs)} ago)`;
  return [
    ['Name', node.id],
    ['Region', node.region],
    ['Zone', node.zone],
    ['Created', created],
    ['Labels', formatLabels(node.labels)],
    ['Taints', formatTaints(node.taints)],
  ];
}

function getStatusFields(node: Node, nowMs: number): readonly Field[] {
  const { status } = node;
  const { connectedSince, lastSeen } = status ?? {};
  const agent = [status?.agentVersion ?? '', status?.agentAddress ?? ''];
  return [
    ['Phase', formatStatus(node)],
    ['Reason', status?.reason ?? ''],
    ['Connected', connectedSince === undefined ? '' : `for ${formatAge(connectedSince, nowMs)}`],
    ['Last seen', lastSeen === undefined ? '' : `${formatAge(lastSeen, nowMs)} ago`],
    [
      'Reliability',
      status === undefined ? '' : `${(status.reliability * 100).toFixed(1)} % of the last hour`,
    ],
    ['Replicas', `${status?.replicaCount ?? 0} of at most ${status?.maxReplicas ?? 0}`],
    ['Capabilities', status?.capabilities.join(', ') ?? ''],
    ['Network proxy', formatNetworkProxy(node)],
    ['Platform', formatPlatform(node)],
    ['Agent', agent.filter((part) => part !== '').join(' at ')],
  ];
}

/** Returns an empty text when the coordinator does not know. */
function formatNetworkProxy({ status }: Node): string {
  if (status?.networkProxy === undefined) return '';
  return status.networkProxy ? 'yes' : 'none: services do not work on this node';
}

function formatConditions({ status }: Node, style: Style): string {
  return formatTable(
    ['TYPE', 'STATUS', { header: 'REASON', fit: 'wrap' }],
    (status?.conditions ?? []).map(({ type, status: isTrue, reason }) => [
      formatWord(Condition_Type[type] ?? ''),
      isTrue ? 'yes' : 'no',
      reason,
    ]),
    style,
  );
}

function formatResourceTable({ status }: Node, style: Style): string {
  if (status === undefined) return '';
  const { capacity, reserved, allocated, usage } = status;
  const amounts = [capacity, reserved, allocated, usage];
  const booked = [capacity, reserved, allocated];
  return formatTable(
    ['RESOURCE', 'CAPACITY', 'SYSTEM', 'ALLOCATED', 'MEASURED USE'],
    [
      ['cpu', ...amounts.map((amount) => formatOptionalCpu(amount?.cpuMillis))],
      ['memory', ...amounts.map((amount) => formatOptionalBytes(amount?.memoryBytes))],
      ['storage', ...amounts.map((amount) => formatOptionalBytes(amount?.storageBytes))],
      ['bandwidth', ...booked.map((amount) => formatBandwidth(amount?.bandwidthBps)), ''],
      ['gpus', ...booked.map((amount) => String(amount?.gpus ?? 0)), ''],
      ...listCustomNames(booked).map((name) => [
        name,
        ...booked.map((amount) =>
          String(new Map(Object.entries(amount?.custom ?? {})).get(name) ?? 0),
        ),
        '',
      ]),
    ],
    style,
  );
}

/** Lists the custom resources of a node, also those that only replicas hold. */
function listCustomNames(amounts: readonly (NodeCapacity | undefined)[]): readonly string[] {
  return [...new Set(amounts.flatMap((amount) => Object.keys(amount?.custom ?? {})))].sort();
}

function formatOptionalCpu(value: number | undefined): string {
  return value === undefined ? '' : formatCpu(value);
}

function formatOptionalBytes(value: bigint | undefined): string {
  return value === undefined ? '' : formatBytes(value);
}
