import { reflect } from '@bufbuild/protobuf/reflect';
import { PlacementReason_Kind, ScoreTermsSchema } from '@cloudless/api';
import type { ExplainWorkloadResponse, NodeVerdict, ReplicaStatus } from '@cloudless/api';
import type { Style } from '../output/style.js';
import { formatTable, toOneLine } from '../output/table.js';
import type { Column } from '../output/table.js';
import { wrapText } from '../output/text-width.js';
import { formatOmittedReplicas, formatReplicaTable } from './replica-view.js';

/**
 * Headers of the nodes whose score terms are shown without `-o wide`: the first choice and the next
 * three.
 */
const RANKS = ['FIRST', 'SECOND', 'THIRD', 'FOURTH'] as const;

/**
 * Formats the explanation of a placement: the summary, the smallest change after which a waiting
 * replica fits, what preemption does for the replica, the nodes that each filter removes, a row for
 * each node with the score or the reason why no replica fits, what decides the order of the nodes,
 * the terms of the best scores, and the replicas.
 * @param wide - True adds the terms of the score to the row of every node.
 */
export function formatExplanation(
  explained: ExplainWorkloadResponse,
  nowMs: number,
  style: Style,
  wide: boolean,
): string {
  const hasFitting = explained.nodes.some(({ fits }) => fits);
  return [
    `${toOneLine(explained.summary)}\n`,
    explained.suggestion === ''
      ? ''
      : formatParagraph(`Smallest change: ${toOneLine(explained.suggestion)}.`, style),
    explained.preemption === ''
      ? ''
      : formatParagraph(`Preemption: ${toOneLine(explained.preemption)}.`, style),
    formatFunnel(explained, style),
    formatVerdictTable(explained, style, wide),
    hasFitting ? formatParagraph(ORDER_TEXT, style) : '',
    wide ? '' : formatScoreTerms(explained, style),
    formatReplicaTable(explained.replicas, nowMs, style, wide) +
      formatOmittedReplicas(explained.omittedReplicas, explained),
  ]
    .filter((part) => part !== '')
    .join('\n');
}

/** The order of the scheduler, in terms of the columns. */
const ORDER_TEXT =
  'The next replica goes to the first node. Nodes with fewer replicas of this workload in the zone ' +
  '(IN ZONE) come first, then those with fewer on the node (ON NODE), then those with a higher SCORE.';

/** Formats a text as lines that fit into the terminal, of at most 100 columns. */
function formatParagraph(text: string, { tableWidth = 100 }: Style): string {
  return `${wrapText(text, Math.min(tableWidth, 100)).join('\n')}\n`;
}

/** Formats the filters in the order in which they are checked, with the nodes that each removes. */
function formatFunnel({ funnel, nodes }: ExplainWorkloadResponse, style: Style): string {
  if (funnel.length === 0) return '';
  const rows = funnel.map(({ kind, removed, left }) => [
    (PlacementReason_Kind[kind] ?? 'OTHER').toLowerCase().replaceAll('_', ' '),
    String(removed),
    String(left),
  ]);
  const header = ['FILTER', 'REMOVED', 'NODES LEFT'];
  return formatTable(header, [['(all nodes)', '', String(nodes.length)], ...rows], style);
}

/**
 * Formats the terms of the scores of the best nodes, one column for each node. A term that is 0 for
 * all of them is left out.
 */
function formatScoreTerms({ nodes }: ExplainWorkloadResponse, style: Style): string {
  const best = nodes
    .filter(({ fits, terms }) => fits && terms !== undefined)
    .slice(0, RANKS.length);
  if (best.length === 0) return '';
  const cells = best.map((verdict) => toScoreTermCells(verdict));
  const rows = SCORE_TERM_HEADERS.map((header, index) => [
    header.toLowerCase().replaceAll('-', ' '),
    ...cells.map((terms) => terms[index] ?? ''),
  ]).filter(([, ...values]) => values.some((value) => Number(value) !== 0));
  const total = ['score', ...best.map(({ score }) => score.toFixed(3))];
  // The node ids are cells and not headers: a cell can be shortened.
  const names = ['node', ...best.map(({ nodeId }) => nodeId)];
  const columns: readonly (Column | string)[] = [
    'SCORE TERM',
    ...best.map((_, index): Column => ({ header: RANKS[index] ?? '', fit: 'shorten' })),
  ];
  return formatTable(columns, [names, ...rows, total], style);
}

function formatVerdictTable(
  { nodes, replicas }: ExplainWorkloadResponse,
  style: Style,
  wide: boolean,
): string {
  const counts = countReplicas(replicas);
  const columns: readonly (Column | string)[] = [
    'NODE',
    { header: 'ZONE', dropOrder: 3 },
    'FITS',
    { header: 'IN ZONE', dropOrder: 1 },
    { header: 'ON NODE', dropOrder: 2 },
    'SCORE',
    ...(wide ? SCORE_TERM_HEADERS : []),
    { header: 'REASON', fit: 'wrap' },
  ];
  const rows = nodes.map((verdict) => [
    verdict.nodeId,
    verdict.zone,
    verdict.fits ? { text: 'yes', paint: style.green } : { text: 'no', paint: style.red },
    String(counts.get(toZoneKey(verdict.zone)) ?? 0),
    String(counts.get(toNodeKey(verdict.nodeId)) ?? 0),
    verdict.fits ? verdict.score.toFixed(3) : '',
    ...(wide ? toScoreTermCells(verdict) : []),
    verdict.reason,
  ]);
  return formatTable(columns, rows, style, { wide });
}

/** Counts the replicas of each node and zone that are not leaving. */
function countReplicas(replicas: readonly ReplicaStatus[]): ReadonlyMap<string, number> {
  const counts = new Map<string, number>();
  for (const { nodeId, zone, leaving } of replicas) {
    if (leaving || nodeId === '') continue;
    for (const key of [toNodeKey(nodeId), toZoneKey(zone)])
      counts.set(key, (counts.get(key) ?? 0) + 1);
  }
  return counts;
}

const toNodeKey = (nodeId: string): string => `node ${nodeId}`;
const toZoneKey = (zone: string): string => `zone ${zone}`;

const SCORE_TERM_HEADERS = ScoreTermsSchema.fields.map(({ name }) =>
  name.toUpperCase().replaceAll('_', '-'),
);

function toScoreTermCells({ fits, terms }: NodeVerdict): readonly string[] {
  return ScoreTermsSchema.fields.map((field) =>
    fits && terms !== undefined
      ? Number(reflect(ScoreTermsSchema, terms).get(field)).toFixed(2)
      : '',
  );
}
