import { reflect } from '@bufbuild/protobuf/reflect';
import { ScoreTermsSchema } from '@cloudless/api';
import type { ExplainWorkloadResponse, NodeVerdict, ReplicaStatus } from '@cloudless/api';
import type { Style } from '../output/style.js';
import { formatTable, toOneLine } from '../output/table.js';
import type { Column } from '../output/table.js';
import { wrapText } from '../output/text-width.js';
import { formatReplicaTable } from './replica-view.js';

/**
 * Formats the explanation of a placement: the summary, a row for each node with the score or the
 * reason why no replica fits, what decides the order of the nodes, and the replicas.
 * @param wide - True adds the terms of the score.
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
    formatVerdictTable(explained, style, wide),
    hasFitting ? formatParagraph(ORDER_TEXT, style) : '',
    formatReplicaTable(explained.replicas, nowMs, style, wide),
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
