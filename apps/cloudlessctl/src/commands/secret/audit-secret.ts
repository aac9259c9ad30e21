import type { Command } from 'commander';
import { SecretAuditEntrySchema, type SecretAuditEntry } from '@cloudless/api';
import { toMessageJson } from '../../call/cli-session.js';
import { createUsageFailure } from '../../call/failure.js';
import type { CommandTree, Invocation } from '../../command-tree.js';
import { parseWholeNumber } from '../../flags/flag-values.js';
import { formatObjectName } from '../../object-name.js';
import { formatSecretAuditTable } from '../../views/secret-audit-view.js';
import { addOutputOptions, printObjects, type ObjectKind } from '../general/list-objects.js';
import { getTextOption } from '../options.js';
import { parseSince } from '../since.js';
import { readSecretName } from './change-secrets.js';

/** Number of entries that are listed without `--limit`. */
const DEFAULT_LIMIT = 100;
/** Largest page of entries that the API returns. */
const MAX_PAGE = 1000;

/** How the accesses to a secret are listed. */
const AUDIT_KIND: ObjectKind<SecretAuditEntry> = {
  plural: 'entries',
  fields: SecretAuditEntrySchema.fields.map(({ jsonName }) => jsonName),
  toJson: (entry) => toMessageJson(SecretAuditEntrySchema, entry),
  formatTable: (entries, { style, settings }) =>
    formatSecretAuditTable(entries, style, settings.output === 'wide'),
};

/** Adds `secret audit`. */
export function addAuditCommand(tree: CommandTree, parent: Command): void {
  addOutputOptions(
    tree
      .addCommand(
        parent,
        'audit <secret>',
        'list who changed a secret or got its values, and who was refused',
        auditSecret,
      )
      .option('--limit <number>', `number of newest entries (default: ${DEFAULT_LIMIT})`)
      .option('--since <time>', 'only entries since a duration ago (1h) or since a time'),
  );
}

/** Lists the newest entries, the newest last, as `events` does. */
async function auditSecret(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const name = readSecretName(invocation);
  const limit = parseWholeNumber(
    '--limit',
    getTextOption(invocation, 'limit') ?? String(DEFAULT_LIMIT),
  );
  if (limit < 1) throw createUsageFailure('--limit: must be at least 1');
  const sinceText = getTextOption(invocation, 'since');
  const since = sinceText === undefined ? {} : { since: parseSince(sinceText, session.nowMs) };
  const entries: SecretAuditEntry[] = [];
  let pageToken = '';
  do {
    const pageSize = Math.min(MAX_PAGE, limit - entries.length);
    const page = await session.secrets.getSecretAuditLog(
      { ...name, ...since, pageSize, pageToken },
      session.getCallOptions(),
    );
    entries.push(...page.entries);
    pageToken = page.nextPageToken;
  } while (pageToken !== '' && entries.length < limit);
  await printObjects(
    invocation,
    AUDIT_KIND,
    entries.toReversed(),
    `no audit records of ${formatObjectName('secret', name)}${sinceText === undefined ? '' : ` since ${sinceText}`}`,
  );
  if (pageToken !== '' && !session.isStructured)
    await session.printNotice('there are older entries; show more with --limit');
}
