import type { JsonValue } from '@bufbuild/protobuf';
import { createUsageFailure } from '../call/failure.js';
import { printYaml } from '../manifest/print-yaml.js';
import { formatJsonPath, formatJsonText, selectJsonPath } from './json-path.js';
import type { CustomColumn, OutputChoice } from './output-format.js';
import { GrowingTable } from './table.js';
import type { TableSpace } from './table.js';

/**
 * Formats a result as `--output` asks. In the template of `jsonpath`, `.items` is the list of every
 * kind, besides its own name (`.workloads`).
 * @param choice - A format other than `table` and `wide`.
 * @throws {@link CliFailure} with exit code 2 when `name` is asked of a result without a name.
 */
export function formatValue(value: JsonValue, choice: OutputChoice, space: TableSpace): string {
  const { output, template = [], columns = [] } = choice;
  switch (output) {
    case 'yaml':
    case 'manifest':
      return printYaml(value);
    case 'jsonpath':
      return endLine(formatJsonPath(template, withItems(value)));
    case 'custom-columns':
      return new GrowingTable(
        columns.map(({ header }) => header),
        space,
      ).addAll(listItems(value).map((item) => toCustomRow(columns, item)));
    case 'name':
      return listItems(value)
        .map((item) => `${getObjectName(item)}\n`)
        .join('');
    default:
      return `${JSON.stringify(value, undefined, 2)}\n`;
  }
}

/** Formats the values of a stream, one after the other. */
export class StreamFormatter {
  private readonly table: GrowingTable;

  constructor(
    private readonly choice: OutputChoice,
    private readonly space: TableSpace,
  ) {
    this.table = new GrowingTable(
      (choice.columns ?? []).map(({ header }) => header),
      space,
    );
  }

  /** Returns the text of the next values. */
  format(values: readonly JsonValue[]): string {
    const { output, columns = [] } = this.choice;
    if (output === 'custom-columns')
      return this.table.addAll(values.map((value) => toCustomRow(columns, value)));
    const separator = output === 'yaml' || output === 'manifest' ? '---\n' : '';
    return values.map((value) => separator + formatValue(value, this.choice, this.space)).join('');
  }
}

function toCustomRow(columns: readonly CustomColumn[], item: JsonValue): readonly string[] {
  return columns.map(
    ({ path }) => selectJsonPath(path, item).map(formatJsonText).join(',') || '<none>',
  );
}

/** Returns the objects of a list result; another result is its own only object. */
function listItems(value: JsonValue): readonly JsonValue[] {
  return findList(value) ?? [value];
}

/** Returns the list of a result such as `{ "workloads": [...] }`; undefined for a single object. */
function findList(value: JsonValue): readonly JsonValue[] | undefined {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return undefined;
  const [[key, list] = []] = Object.entries(value);
  return key !== undefined && LIST_KEYS.has(key) && Array.isArray(list) ? list : undefined;
}

/** The keys of list results. */
const LIST_KEY_NAMES = [
  'accessTokens',
  'configs',
  'coordinators',
  'endpoints',
  'entries',
  'policies',
  'routes',
  'secrets',
  'services',
  'workloads',
  'nodes',
  'events',
  'containers',
  'replicas',
  'namespaces',
  'versions',
  'plans',
  'contexts',
  'users',
  'tokens',
  'credentials',
  'bans',
] as const;

/** A key of list results, whose value is the list of objects. */
export type ListKey = (typeof LIST_KEY_NAMES)[number];

const LIST_KEYS: ReadonlySet<string> = new Set(LIST_KEY_NAMES);

function withItems(value: JsonValue): JsonValue {
  const items = findList(value);
  return items === undefined || typeof value !== 'object' || Array.isArray(value)
    ? value
    : { ...value, items: [...items] };
}

/**
 * Returns the name with which other commands accept an object: `namespace/name` of a workload, else
 * the name or id.
 */
function getObjectName(item: JsonValue): string {
  if (typeof item === 'object' && item !== null && !Array.isArray(item)) {
    const { namespace, name } = item;
    if (typeof name === 'string')
      return typeof namespace === 'string' ? `${namespace}/${name}` : name;
    for (const key of ['id', 'containerId', 'version', 'nodeId', 'principal'])
      if (typeof item[key] === 'string' || typeof item[key] === 'number') return String(item[key]);
  }
  throw createUsageFailure('--output name: the result of this command has no name');
}

function endLine(text: string): string {
  return text === '' || text.endsWith('\n') ? text : `${text}\n`;
}
