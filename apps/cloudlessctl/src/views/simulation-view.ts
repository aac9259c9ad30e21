import type {
  SimulateClusterResponse,
  SimulatedCapacity,
  SimulatedHeadroom,
  SimulatedMove,
  SimulatedWorkload,
} from '@cloudless/api';
import { formatBytes, formatCount } from '../output/human.js';
import type { Style } from '../output/style.js';
import { formatTable, toOneLine, type Cell, type Column, type Row } from '../output/table.js';
import { wrapText } from '../output/text-width.js';
import { formatSections } from './sections.js';

/** Most moves that are shown; `-o json` has more. */
const MAX_SHOWN_MOVES = 20;

/**
 * Formats a simulation: the changes, the effect on each workload, the moves and the capacity.
 * @param changes - The changes in words: `lose zone a`.
 */
export function formatSimulation(
  changes: readonly string[],
  simulated: SimulateClusterResponse,
  style: Style,
): string {
  const { revision, workloads, totalWorkloads, waitingBefore, waitingAfter } = simulated;
  const what = changes.length === 0 ? 'no changes' : changes.join(', ');
  const where = revision === 0n ? '' : ` from revision ${revision}`;
  const summary = [
    `simulated${where}: ${toOneLine(what)}`,
    `${formatCount(simulated.totalMoves, 'move')}; ${formatCount(waitingAfter, 'replica')} without a node at the end, ${waitingBefore} before`,
    ...(simulated.notPredicted === 0
      ? []
      : [
          `the placement of ${formatCount(simulated.notPredicted, 'replica')} was not predicted: the simulation is too large`,
        ]),
    ...(totalWorkloads <= workloads.length
      ? []
      : [`only the first ${workloads.length} of ${totalWorkloads} workloads are listed`]),
  ];
  return `${wrapLines(summary, style)}\n${formatSections(style, [
    ['Workloads', formatWorkloads(workloads, style)],
    ['Preemption', formatPreemptions(workloads, style)],
    ['Waiting', formatWaiting(workloads, style)],
    ['Moves', formatMoves(simulated, style)],
    ['Capacity', formatCapacity(simulated.before, simulated.after, style)],
  ])}`;
}

/** Formats lines that fit into the terminal, of at most 100 columns. */
function wrapLines(lines: readonly string[], { tableWidth = 100 }: Style, indent = ''): string {
  const width = Math.min(tableWidth, 100) - 2;
  return lines.map((line) => `${wrapText(line, width).join(`\n${indent}`)}\n`).join('');
}

/** Leaves room for the indentation of a section. */
function narrow(style: Style): Style {
  return style.tableWidth === undefined ? style : { ...style, tableWidth: style.tableWidth - 2 };
}

function formatWorkloads(workloads: readonly SimulatedWorkload[], style: Style): string {
  const columns: readonly (Column | string)[] = [
    { header: 'WORKLOAD', fit: 'wrap', minWidth: 16 },
    'READY',
    'DESIRED',
    'FLOOR',
    'MIN',
    'LEAVING',
    'PLACED',
    'WAITING',
  ];
  const rows = workloads.map((workload): Row => {
    const { readyBefore, readyAfter, desired, floor, minAvailable, waiting } = workload;
    const isBelow = floor < minAvailable && floor < readyBefore;
    return [
      `${workload.namespace}/${workload.name}`,
      readyBefore === readyAfter ? String(readyAfter) : `${readyBefore} -> ${readyAfter}`,
      String(desired),
      mark(isBelow ? `${floor} !` : String(floor), isBelow, style),
      String(minAvailable),
      String(workload.leaving),
      String(workload.placed),
      mark(String(waiting), waiting > 0, style),
    ];
  });
  return formatTable(columns, rows, narrow(style));
}

function mark(text: string, isProblem: boolean, style: Style): Cell | string {
  return isProblem ? { text, paint: style.red } : text;
}

/** Says which workloads would preempt replicas of others. */
function formatPreemptions(workloads: readonly SimulatedWorkload[], style: Style): string {
  const lines = workloads
    .filter(({ preempts }) => preempts !== '')
    .map(({ namespace, name, preempts }) => `${namespace}/${name}: ${toOneLine(preempts)}`);
  return wrapLines(lines, style);
}

/** Says why replicas wait, and what would let them fit. */
function formatWaiting(workloads: readonly SimulatedWorkload[], style: Style): string {
  const lines = workloads
    .filter(({ waiting }) => waiting > 0)
    .map(({ namespace, name, waiting, waitingReason, suggestion }) => {
      const hint = suggestion === '' ? '' : `; smallest change: ${toOneLine(suggestion)}`;
      return `${namespace}/${name}: ${formatCount(waiting, 'replica')}: ${toOneLine(waitingReason)}${hint}`;
    });
  return wrapLines(lines, style);
}

function formatMoves({ moves, totalMoves }: SimulateClusterResponse, style: Style): string {
  const columns: readonly (Column | string)[] = [
    { header: 'WORKLOAD', fit: 'wrap', minWidth: 16 },
    { header: 'REPLICA', fit: 'shorten', dropOrder: 1 },
    { header: 'FROM', fit: 'shorten', minWidth: 14 },
    { header: 'TO', fit: 'shorten', minWidth: 14 },
  ];
  const rows = moves
    .slice(0, MAX_SHOWN_MOVES)
    .map((move): Row => [
      `${move.namespace}/${move.name}`,
      move.replicaId === '' ? '(new)' : move.replicaId,
      formatPlace(move.fromNodeId, move.fromZone),
      formatDestination(move),
    ]);
  const more = totalMoves - rows.length;
  return `${formatTable(columns, rows, narrow(style))}${more > 0 ? `and ${more} more\n` : ''}`;
}

function formatPlace(nodeId: string, zone: string): string {
  return zone === '' ? nodeId : `${nodeId} (${zone})`;
}

function formatDestination({ toNodeId, toZone }: SimulatedMove): string {
  return formatPlace(toNodeId, toZone);
}

function formatCapacity(
  before: SimulatedCapacity | undefined,
  after: SimulatedCapacity | undefined,
  style: Style,
): string {
  const rows: Row[] = [];
  if (before?.total !== undefined) rows.push(formatHeadroom('before', before.total));
  if (after?.total !== undefined) rows.push(formatHeadroom('after', after.total));
  const zones = after?.zones ?? [];
  if (zones.length > 1)
    for (const zone of zones)
      rows.push(formatHeadroom(`  zone ${zone.zone === '' ? '(none)' : zone.zone}`, zone));
  const columns: readonly (Column | string)[] = [
    'STATE',
    'NODES',
    'FREE CPU',
    'FREE MEMORY',
    { header: 'LARGEST CPU', dropOrder: 1 },
    { header: 'LARGEST MEMORY', dropOrder: 2 },
    { header: 'FREE REPLICAS', dropOrder: 3 },
  ];
  return formatTable(columns, rows, narrow(style));
}

function formatHeadroom(name: string, headroom: SimulatedHeadroom): Row {
  const { cpuMillis, freeCpuMillis, memoryBytes, freeMemoryBytes } = headroom;
  return [
    name,
    String(headroom.nodes),
    `${formatCores(freeCpuMillis)} of ${formatCores(cpuMillis)}`,
    `${formatBytes(freeMemoryBytes)} of ${formatBytes(memoryBytes)}`,
    formatCores(headroom.largestFreeCpuMillis),
    formatBytes(headroom.largestFreeMemoryBytes),
    String(headroom.freeReplicas),
  ];
}

/** Formats thousandths of a core as cores with at most one decimal: `3.7`. */
function formatCores(millis: bigint): string {
  return (Number(millis) / 1000).toFixed(1).replace(/\.0$/, '');
}
