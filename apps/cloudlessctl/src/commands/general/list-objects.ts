import type { JsonValue } from '@bufbuild/protobuf';
import type { Command } from 'commander';
import { createUsageFailure } from '../../call/failure.js';
import type { CliSession } from '../../call/cli-session.js';
import type { Invocation } from '../../command-tree.js';
import type { ListKey } from '../../output/format-value.js';
import { compareJsonValues, selectJsonPath } from '../../output/json-path.js';
import type { PathSegment } from '../../output/json-path-parser.js';
import { parseSortPath } from '../../output/output-format.js';
import { getTextOption, hasFlag } from '../options.js';
import { parseFieldSelector } from './field-selector.js';
import type { FieldFilter } from './field-selector.js';

/** How the objects of one kind are selected and printed. */
export interface ObjectKind<Item> {
  /** Plural, which is also the key of the list in JSON: `workloads`. */
  readonly plural: ListKey;
  /** The names of the fields that `--field-selector` accepts. */
  readonly fields: readonly string[];
  /** Returns an object as in `-o json`. */
  toJson(item: Item): JsonValue;
  /** Formats objects as a table. */
  formatTable(items: readonly Item[], session: CliSession): string;
  /** Formats objects as manifests, for `-o manifest`. Absent: the kind has no manifests. */
  formatManifests?(items: readonly Item[]): string;
}

/** Adds the options with which every list selects, sorts and prints its objects. */
export function addOutputOptions(command: Command): Command {
  return command
    .option(
      '--field-selector <selector>',
      'only with these values, for example phase=running,ready!=true',
    )
    .option('--sort-by <text>', 'sort by a field of the JSON output, for example .createdAt')
    .option('--no-headers', 'print tables without their header');
}

/**
 * Returns the namespace and the labels of the objects to list. An empty namespace: all namespaces,
 * with `--all-namespaces`.
 */
export function readListFilter(invocation: Invocation): {
  readonly namespace: string;
  readonly labelSelector: string;
} {
  return {
    namespace: hasFlag(invocation, 'allNamespaces') ? '' : invocation.session.settings.namespace,
    labelSelector: getTextOption(invocation, 'selector') ?? '',
  };
}

/** Returns the notice for an empty list, such as `no routes in namespace shop`. */
export function describeEmptyList(plural: ListKey, namespace: string): string {
  return namespace === '' ? `no ${plural}` : `no ${plural} in namespace ${namespace}`;
}

/** Returns the filter of `--field-selector`; undefined without the option. */
export function readFieldFilter<Item>(
  invocation: Invocation,
  kind: ObjectKind<Item>,
): FieldFilter | undefined {
  const text = getTextOption(invocation, 'fieldSelector');
  return text === undefined ? undefined : parseFieldSelector(text, kind.fields);
}

/**
 * Prints objects as the options ask: selected by `--field-selector`, sorted by `--sort-by`, in the
 * format of `--output`.
 * @param empty - Notice when there are no objects. When `--field-selector` selects none of several
 *   objects, the notice says so.
 * @param options - `single`: true when one object was asked for by its name; then JSON and YAML have
 *   the object instead of a list.
 */
export async function printObjects<Item>(
  invocation: Invocation,
  kind: ObjectKind<Item>,
  items: readonly Item[],
  empty: string,
  { single = false }: { readonly single?: boolean } = {},
): Promise<void> {
  const { session } = invocation;
  const filter = readFieldFilter(invocation, kind);
  const sortText = getTextOption(invocation, 'sortBy');
  const sortPath = sortText === undefined ? undefined : parseSortPath(sortText);
  checkManifestKind(session, kind);
  const selected = filter === undefined ? items : items.filter((item) => filter(kind.toJson(item)));
  const sorted = sortPath === undefined ? selected : sortByPath(selected, kind, sortPath);
  const isFilteredOut = items.length > 0 && selected.length === 0;
  const notice = isFilteredOut
    ? `no ${kind.plural} with --field-selector ${getTextOption(invocation, 'fieldSelector') ?? ''}`
    : empty;
  await printList(session, kind, sorted, notice, single);
}

/**
 * Rejects `-o manifest` for a kind without manifests.
 * @throws {@link CliFailure} with exit code 2.
 */
function checkManifestKind<Item>(session: CliSession, kind: ObjectKind<Item>): void {
  if (session.settings.output === 'manifest' && kind.formatManifests === undefined)
    throw createUsageFailure(
      `-o manifest applies to workloads, services, routes, configs and policies, not to ${kind.plural}`,
    );
}

async function printList<Item>(
  session: CliSession,
  kind: ObjectKind<Item>,
  items: readonly Item[],
  empty: string,
  single: boolean,
): Promise<void> {
  const [only] = items;
  if (!session.isStructured)
    return items.length === 0
      ? session.printNotice(empty)
      : session.print(kind.formatTable(items, session));
  if (session.settings.output === 'manifest' && kind.formatManifests !== undefined)
    return session.print(kind.formatManifests(items));
  await session.printValue(
    single && items.length === 1 && only !== undefined
      ? kind.toJson(only)
      : { [kind.plural]: items.map((item) => kind.toJson(item)) },
  );
}

/** Sorts by the first value of a path, ascending. Objects without a value come last. */
function sortByPath<Item>(
  items: readonly Item[],
  kind: ObjectKind<Item>,
  path: readonly PathSegment[],
): readonly Item[] {
  const keyed = items.map((item) => ({ item, key: selectJsonPath(path, kind.toJson(item))[0] }));
  if (items.length > 0 && keyed.every(({ key }) => key === undefined))
    throw createUsageFailure(
      `--sort-by: no object has this field; -o json shows the fields of ${kind.plural}`,
    );
  return keyed
    .sort(({ key: a }, { key: b }) =>
      a === undefined || b === undefined
        ? Number(a === undefined) - Number(b === undefined)
        : compareJsonValues(a, b),
    )
    .map(({ item }) => item);
}
