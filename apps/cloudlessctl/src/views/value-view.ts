import type { Config, ConfigVersion } from '@cloudless/api';
import { formatAge, formatBytes, formatCount, formatLabels } from '../output/human.js';
import { formatStyledTime, type Style } from '../output/style.js';
import { formatTable } from '../output/table.js';
import { decodeText } from '../value-rules.js';
import { formatFields, formatSections } from './sections.js';
import { describeEffect, type Use } from './use-view.js';

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
