import type { ProposeMovesResponse } from '@cloudless/api';
import { formatCount } from '../output/human.js';
import type { Style } from '../output/style.js';
import { formatTable, type Column, type Row } from '../output/table.js';

/** Formats proposed moves as a table, with the sum of their gains below. */
export function formatProposedMoves(
  { moves, gain, notExamined }: ProposeMovesResponse,
  style: Style,
): string {
  const columns: readonly (Column | string)[] = [
    { header: 'WORKLOAD', fit: 'wrap', minWidth: 12 },
    { header: 'REPLICA', fit: 'shorten', dropOrder: 1 },
    { header: 'FROM', fit: 'shorten' },
    { header: 'TO', fit: 'shorten' },
    'GAIN',
    { header: 'REASON', fit: 'wrap', minWidth: 20 },
  ];
  const rows = moves.map((move): Row => [
    `${move.namespace}/${move.name}`,
    move.replicaId,
    move.fromNodeId,
    move.toNodeId,
    String(move.gain),
    move.reason,
  ]);
  const rest =
    notExamined === 0
      ? ''
      : `; ${formatCount(notExamined, 'workload')} not examined to the end, the search was too large`;
  return `${formatTable(columns, rows, style)}${formatCount(moves.length, 'move')}, gain ${gain}${rest}\n`;
}
