import type { SecretAuditEntry } from '@cloudless/api';
import { formatStyledTime, type Style } from '../output/style.js';
import { formatTable, type Cell } from '../output/table.js';

/**
 * Formats accesses to a secret as a table, in the given order.
 * @param wide - True adds address, audience and trace.
 */
export function formatSecretAuditTable(
  entries: readonly SecretAuditEntry[],
  style: Style,
  wide: boolean,
): string {
  return formatTable(
    [
      'TIME',
      'OPERATION',
      'PRINCIPAL',
      { header: 'RESULT', fit: 'wrap' as const, minWidth: 16 },
      { header: 'VERSION', dropOrder: 1 },
      { header: 'VIA', dropOrder: 2 },
      ...(wide ? ['ADDRESS', { header: 'AUDIENCE', fit: 'wrap' as const }, 'TRACE'] : []),
    ],
    entries.map((entry) => [
      formatStyledTime(entry.time, style),
      `${entry.operation}${entry.count > 1 ? ` (${entry.count} times)` : ''}`,
      entry.principal,
      formatResult(entry, style),
      entry.version === 0 ? '' : String(entry.version),
      formatWay(entry),
      ...(wide ? [entry.address, entry.audience, entry.traceId] : []),
    ]),
    style,
    { wide },
  );
}

/** Formats the result with the cause, which the refused caller does not learn. */
function formatResult({ result, cause }: SecretAuditEntry, style: Style): Cell | string {
  if (result === 'ok') return result;
  if (result === 'unchanged') return { text: result, paint: style.dim };
  return { text: cause === '' ? result : `${result}: ${cause}`, paint: style.red };
}

/** Names the access token of an access, or the replica that got the values. */
function formatWay({ tokenId, replicaId }: SecretAuditEntry): string {
  return [
    ...(tokenId === '' ? [] : [`token ${tokenId}`]),
    ...(replicaId === '' ? [] : [`replica ${replicaId}`]),
  ].join(', ');
}
