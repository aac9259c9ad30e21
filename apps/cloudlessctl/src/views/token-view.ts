import type { JoinToken, NodeBan } from '@cloudless/api';
import { formatAge, formatLabels } from '../output/human.js';
import type { Style } from '../output/style.js';
import { formatTable } from '../output/table.js';
import type { Cell, Column } from '../output/table.js';
import { formatExpiry } from './expiry.js';

/**
 * Formats join tokens as a table.
 * @param wide - True adds the restrictions of the token and the nodes that joined with the token.
 */
export function formatTokenTable(
  tokens: readonly JoinToken[],
  nowMs: number,
  style: Style,
  wide: boolean,
): string {
  return formatTable(
    [
      'ID',
      'STATE',
      'USES',
      { header: 'NODES', dropOrder: 3 },
      { header: 'AGE', dropOrder: 2 },
      { header: 'CREATED BY', dropOrder: 1 },
      ...(wide ? WIDE_COLUMNS : []),
      { header: 'DESCRIPTION', fit: 'wrap' as const },
    ],
    tokens.map((token) => [
      token.id,
      formatState(token, nowMs, style),
      `${token.uses.length}/${token.maxUses}`,
      token.nodeIdPattern === '' ? 'any' : token.nodeIdPattern,
      formatAge(token.createdAt, nowMs),
      token.createdBy,
      ...(wide
        ? [
            formatLabels(token.labels),
            token.cidrs.join(','),
            token.uses.map(({ nodeId }) => nodeId).join(','),
          ]
        : []),
      token.description,
    ]),
    style,
    { wide },
  );
}

const WIDE_COLUMNS: readonly Column[] = [
  { header: 'LABELS', fit: 'wrap', minWidth: 16 },
  { header: 'NETWORKS', fit: 'wrap', minWidth: 16 },
  { header: 'JOINED', fit: 'wrap', minWidth: 16 },
];

function formatState(
  { expiresAt, revokedAt, uses, maxUses }: JoinToken,
  nowMs: number,
  style: Style,
): Cell | string {
  if (revokedAt !== undefined)
    return { text: `revoked ${formatAge(revokedAt, nowMs)} ago`, paint: style.dim };
  if (uses.length >= maxUses) return { text: 'used up', paint: style.dim };
  return formatExpiry(expiresAt, nowMs, style);
}

/** Formats the banned nodes as a table. */
export function formatBanTable(bans: readonly NodeBan[], nowMs: number, style: Style): string {
  return formatTable(
    ['NODE', 'AGE', { header: 'BANNED BY', dropOrder: 1 }, { header: 'REASON', fit: 'wrap' }],
    bans.map(({ nodeId, bannedAt, bannedBy, reason }) => [
      nodeId,
      formatAge(bannedAt, nowMs),
      bannedBy,
      reason,
    ]),
    style,
  );
}
