import type { AccessToken } from '@cloudless/api';
import { formatAge, formatCount } from '../output/human.js';
import { formatStyledTime, type Style } from '../output/style.js';
import { formatTable } from '../output/table.js';
import { formatExpiry } from './expiry.js';

/** Formats the access tokens of one secret as a table. */
export function formatAccessTokenTable(
  tokens: readonly AccessToken[],
  nowMs: number,
  style: Style,
): string {
  return formatTable(
    [
      'ID',
      { header: 'AUDIENCE', fit: 'wrap' as const, minWidth: 16 },
      'USES',
      'EXPIRY',
      { header: 'AGE', dropOrder: 1 },
      { header: 'CREATED BY', dropOrder: 2 },
    ],
    tokens.map((token) => [
      token.id,
      token.audience,
      `${token.useCount}/${token.maxUses < 0 ? 'unlimited' : token.maxUses}`,
      formatExpiry(token.expiresAt, nowMs, style),
      formatAge(token.createdAt, nowMs),
      token.createdBy,
    ]),
    style,
  );
}

/** Describes a new access token without its text: `for workload/default.web, 1 use, expires …`. */
export function describeAccessToken(token: AccessToken | undefined, style: Style): string {
  const uses = formatUsesLeft(token?.maxUses ?? 0);
  return `for ${token?.audience ?? ''}, ${uses}, expires ${formatStyledTime(token?.expiresAt, style)}`;
}

/**
 * Formats a number of uses: `3 uses`, `unlimited uses`.
 * @param uses - -1: no limit.
 */
export function formatUsesLeft(uses: number): string {
  return uses < 0 ? 'unlimited uses' : formatCount(uses, 'use');
}
