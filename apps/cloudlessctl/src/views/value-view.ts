import type { AccessToken, Config, ConfigVersion, Secret, SecretVersion } from '@cloudless/api';
import { formatAge, formatBytes, formatCount, formatLabels } from '../output/human.js';
import { formatStyledTime, type Style } from '../output/style.js';
import { formatTable, type Cell } from '../output/table.js';
import { decodeText, type Values } from '../value-rules.js';
import { formatAccessTokenTable } from './access-token-view.js';
import { formatExpiry } from './expiry.js';
import { formatFields, formatSections } from './sections.js';
import { describeEffect, type Use } from './use-view.js';

/** Formats secrets as a table. There are no values in a secret. */
export function formatSecretTable(
  secrets: readonly Secret[],
  nowMs: number,
  style: Style,
  wide: boolean,
): string {
  return formatTable(
    [
      { header: 'NAMESPACE', dropOrder: 3 },
      'NAME',
      'VERSION',
      { header: 'KEYS', fit: 'wrap' as const },
      { header: 'EXPIRY', dropOrder: 2 },
      { header: 'AGE', dropOrder: 1 },
      ...(wide
        ? [
            'SIZE',
            { header: 'AUDIENCES', fit: 'wrap' as const, minWidth: 16 },
            { header: 'LABELS', fit: 'wrap' as const, minWidth: 16 },
          ]
        : []),
    ],
    secrets.map((secret) => {
      const sizes = secret.versions.at(-1)?.sizes ?? {};
      return [
        secret.namespace,
        secret.name,
        formatVersion(secret),
        Object.keys(sizes).sort().join(', '),
        formatExpiry(secret.expiresAt, nowMs, style),
        formatAge(secret.createdAt, nowMs),
        ...(wide
          ? [formatTotal(sizes), secret.audiences.join(', '), formatLabels(secret.labels)]
          : []),
      ];
    }),
    style,
    { wide },
  );
}

/** Formats everything that is known of a secret, without values and texts of tokens. */
export function formatSecretDescription(
  {
    secret,
    accessTokens,
  }: { readonly secret: Secret; readonly accessTokens: readonly AccessToken[] },
  uses: readonly Use[],
  nowMs: number,
  style: Style,
): string {
  const expiry = formatExpiry(secret.expiresAt, nowMs, style);
  return formatSections(style, [
    [
      '',
      formatFields([
        ['Name', `${secret.namespace}/${secret.name}`],
        ['Version', formatVersion(secret)],
        ['Audiences', secret.audiences.join(', ')],
        ['Expiry', typeof expiry === 'string' ? expiry || 'none' : expiry.text],
        ['Labels', formatLabels(secret.labels)],
        ['Created', formatStyledTime(secret.createdAt, style)],
        ['Changed', formatStyledTime(secret.updatedAt, style)],
      ]),
    ],
    [
      'Keys',
      formatTable(
        ['KEY', 'SIZE'],
        Object.entries(secret.versions.at(-1)?.sizes ?? {})
          .sort(([a], [b]) => (a < b ? -1 : 1))
          .map(([name, size]) => [name, formatBytes(BigInt(size))]),
        style,
      ),
    ],
    ['Versions', formatSecretVersions(secret.versions, nowMs, style)],
    ['Used by', formatUseTable(uses, style)],
    ['Used by routes', formatRoutesOf(secret, style)],
    ['Access tokens', formatAccessTokenTable(accessTokens, nowMs, style)],
  ]);
}

/**
 * Formats the values of a secret as a table. A value of several lines, or that is no text, is shown
 * by its size.
 */
export function formatValueTable(values: Values, style: Style): string {
  return formatTable(
    ['KEY', 'SIZE', 'VALUE'],
    Object.entries(values)
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([key, value]) => [
        key,
        formatBytes(BigInt(value.length)),
        formatValueCell(key, value, style),
      ]),
    style,
  );
}

/** A control character in a cell would be replaced, so such a value is not shown. */
function formatValueCell(key: string, value: Uint8Array, style: Style): Cell | string {
  const text = decodeText(value);
  const note = (problem: string): Cell => ({
    text: `(${problem}; use --key ${key})`,
    paint: style.dim,
  });
  if (text === undefined) return note('no text');
  if (text === '') return note('empty');
  if (text.trim() !== text || /\p{Cc}/u.test(text))
    return note(text.includes('\n') ? 'text with line ends' : 'text with special characters');
  return text;
}

function formatSecretVersions(
  versions: readonly SecretVersion[],
  nowMs: number,
  style: Style,
): string {
  return formatTable(
    ['VERSION', 'AGE', 'KEYS', { header: 'MASTER KEY', dropOrder: 1 }],
    versions.map(({ version, createdAt, sizes, masterKeyId }) => [
      String(version),
      formatAge(createdAt, nowMs),
      formatCount(Object.keys(sizes).length, 'key'),
      masterKeyId,
    ]),
    style,
  );
}

/** Formats configs as a table. */
export function formatConfigTable(
  configs: readonly Config[],
  nowMs: number,
  style: Style,
  wide: boolean,
): string {
  return formatTable(
    [
      { header: 'NAMESPACE', dropOrder: 2 },
      'NAME',
      'VERSION',
      { header: 'KEYS', fit: 'wrap' as const },
      'SIZE',
      { header: 'AGE', dropOrder: 1 },
      ...(wide ? [{ header: 'LABELS', fit: 'wrap' as const, minWidth: 16 }] : []),
    ],
    configs.map((config) => {
      const sizes = config.versions.at(-1)?.sizes ?? {};
      return [
        config.namespace,
        config.name,
        formatVersion(config),
        Object.keys(sizes).sort().join(', '),
        formatTotal(sizes),
        formatAge(config.createdAt, nowMs),
        ...(wide ? [formatLabels(config.labels)] : []),
      ];
    }),
    style,
    { wide },
  );
}

/** Formats a config with its values. A value that is no text is shown by its size. */
export function formatConfigDescription(
  config: Config,
  uses: readonly Use[],
  nowMs: number,
  style: Style,
): string {
  return formatSections(style, [
    [
      '',
      formatFields([
        ['Name', `${config.namespace}/${config.name}`],
        ['Version', formatVersion(config)],
        ['Labels', formatLabels(config.labels)],
        ['Created', formatStyledTime(config.createdAt, style)],
        ['Changed', formatStyledTime(config.updatedAt, style)],
      ]),
    ],
    [
      'Values',
      formatFields(
        Object.entries(config.data)
          .sort(([a], [b]) => (a < b ? -1 : 1))
          .map(([key, value]) => [key, formatValueText(value)]),
      ),
    ],
    ['Versions', formatConfigVersions(config.versions, nowMs, style)],
    ['Used by', formatUseTable(uses, style)],
  ]);
}

function formatConfigVersions(
  versions: readonly ConfigVersion[],
  nowMs: number,
  style: Style,
): string {
  return formatTable(
    ['VERSION', 'AGE', 'KEYS', 'SIZE'],
    versions.map(({ version, createdAt, sizes }) => [
      String(version),
      formatAge(createdAt, nowMs),
      formatCount(Object.keys(sizes).length, 'key'),
      formatTotal(sizes),
    ]),
    style,
  );
}

function formatUseTable(uses: readonly Use[], style: Style): string {
  if (uses.length === 0) return 'no workload\n';
  return formatTable(
    ['WORKLOAD', { header: 'A NEW VERSION', fit: 'wrap' as const }],
    uses.map((use) => [`${use.namespace}/${use.name}`, describeEffect(use)]),
    style,
  );
}

/** Empty without a route. */
function formatRoutesOf({ namespace, usedByRoutes }: Secret, style: Style): string {
  if (usedByRoutes.length === 0) return '';
  return formatTable(
    ['ROUTE', 'A NEW VERSION'],
    usedByRoutes.map((name) => [`${namespace}/${name}`, 'is served at once, without a rollout']),
    style,
  );
}

/** Returns the text of a value; its size when it is no text. */
export function formatValueText(value: Uint8Array): string {
  const text = decodeText(value);
  if (text === undefined) return `(${formatBytes(BigInt(value.length))}, no text)`;
  return text === '' ? '(empty)' : text;
}

function formatVersion({
  version,
  immutable,
}: {
  readonly version: number;
  readonly immutable: boolean;
}): string {
  return `${version}${immutable ? ' (immutable)' : ''}`;
}

function formatTotal(sizes: Readonly<Record<string, number>>): string {
  return formatBytes(BigInt(Object.values(sizes).reduce((sum, size) => sum + size, 0)));
}
