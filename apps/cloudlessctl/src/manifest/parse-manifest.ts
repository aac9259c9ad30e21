import { fromJson } from '@bufbuild/protobuf';
import { isMap, isScalar, isSeq } from 'yaml';
import type { Document, Node } from 'yaml';
import { WorkloadSpecSchema } from '@cloudless/api';
import type { WorkloadSpec } from '@cloudless/api';
import { DNS_LABEL_RULE, isDnsLabel } from '../dns-label.js';
import { OBJECT_NAME_RULE, isObjectName } from '../object-name.js';
import { suggestKnown } from '../suggest.js';
import { SERVICE_KEYS, readServiceBody, type ManifestService } from './manifest-service.js';
import { CONFIG_KEYS, readConfigBody, type ManifestConfig } from './manifest-config.js';
import { ROUTE_KEYS, readRouteBody, type ManifestRoute } from './manifest-route.js';
import type { ObjectId } from './read-body.js';
import { readGeneration } from './read-generation.js';
import { readMessage } from './read-message.js';
import { YamlReader, describeNode } from './yaml-reader.js';
import type { Entry, Problem } from './yaml-reader.js';

/** A workload of a manifest. */
export interface ManifestWorkload extends ObjectId {
  readonly spec: WorkloadSpec;
}

/** The content of a manifest file. Must not be used unless `problems` is empty. */
export interface Manifest {
  readonly workloads: readonly ManifestWorkload[];
  readonly services: readonly ManifestService[];
  readonly routes: readonly ManifestRoute[];
  readonly configs: readonly ManifestConfig[];
  readonly problems: readonly Problem[];
}

/** A document of a manifest. */
type ManifestObject =
  | { readonly kind: 'Workload'; readonly value: ManifestWorkload }
  | { readonly kind: 'Service'; readonly value: ManifestService }
  | { readonly kind: 'Route'; readonly value: ManifestRoute }
  | { readonly kind: 'Config'; readonly value: ManifestConfig };

/** Kind of a document. */
type ManifestKind = ManifestObject['kind'];
const KINDS: readonly ManifestKind[] = ['Workload', 'Service', 'Route', 'Config'];

/** The command that takes the place of a document of each kind that manifests do not have. */
const OTHER_KINDS: Readonly<Record<string, string>> = {
  Secret:
    'a manifest has no values of secrets; create the secret with: cloudlessctl secret create NAME --from-file KEY=PATH',
  Policy: 'apply policies with: cloudlessctl policy apply -f FILE',
};

/**
 * Parses a manifest: YAML or JSON with any number of documents `{ kind?, namespace?, name, spec }`
 * or lists of such maps. `kind` is Workload, the default, Service, Route or Config; a service may
 * also have `labels` and `loadBalancer`, a route `labels`, and a config has `data` instead of a spec.
 * Keys that begin with `x-` beside `spec` are ignored: a place for anchors.
 * @param file - File name for messages.
 * @param defaultNamespace - Namespace of documents without a namespace.
 * @returns The workloads, services, routes and configs, and the problems of all documents. A file
 *   without any is a problem.
 */
export function parseManifest(file: string, bytes: Uint8Array, defaultNamespace: string): Manifest {
  const reader = new YamlReader(file, bytes);
  const objects: ManifestObject[] = [];
  const seen = new Set<string>();
  for (const document of reader.problems.length > 0 ? [] : reader.documents) {
    const { nodes, prefix, kind } = findObjectNodes(reader, document);
    nodes.forEach((node, index) => {
      const object = readDocument(reader, document, node, {
        prefix: prefix === undefined ? '' : `${prefix}[${index}].`,
        defaultKind: kind,
        defaultNamespace,
      });
      if (object === undefined) return;
      const { namespace, name } = object.value;
      const key = `${object.kind.toLowerCase()} ${namespace}/${name}`;
      if (seen.has(key)) reader.report(node, '', `the ${key} is declared twice`);
      seen.add(key);
      objects.push(object);
    });
  }
  if (objects.length === 0 && reader.problems.length === 0)
    reader.report(null, '', 'contains no workload, service, route or config');
  return {
    workloads: objects.flatMap((each) => (each.kind === 'Workload' ? [each.value] : [])),
    services: objects.flatMap((each) => (each.kind === 'Service' ? [each.value] : [])),
    routes: objects.flatMap((each) => (each.kind === 'Route' ? [each.value] : [])),
    configs: objects.flatMap((each) => (each.kind === 'Config' ? [each.value] : [])),
    problems: reader.problems,
  };
}

/** Keys of the lists in the output of `get -o yaml`, with the kind of their items. */
const LIST_KEYS: Readonly<Record<string, ManifestKind>> = {
  workloads: 'Workload',
  services: 'Service',
  routes: 'Route',
  configs: 'Config',
};

/**
 * Returns the nodes of the objects of a document: the document itself, the items of a list, or the
 * items of `workloads`, `services`, `routes` or `configs`, as in the output of `get -o yaml`.
 * @returns `prefix`: path of the list; undefined when the document is one object. `kind`: kind of
 *   nodes that do not name theirs.
 */
function findObjectNodes(
  reader: YamlReader,
  document: Document.Parsed,
): {
  readonly nodes: readonly (Node | null)[];
  readonly prefix: string | undefined;
  readonly kind: ManifestKind;
} {
  const root = reader.resolveAlias(document, document.contents);
  const toNodes = (items: readonly unknown[]): readonly (Node | null)[] =>
    items.map((item) => reader.resolveAlias(document, item as Node | null));
  if (isSeq(root)) return { nodes: toNodes(root.items), prefix: '', kind: 'Workload' };
  if (isMap(root) && root.items.length === 1) {
    for (const [key, kind] of Object.entries(LIST_KEYS)) {
      const list = root.get(key, true);
      if (isSeq(list)) return { nodes: toNodes(list.items), prefix: key, kind };
    }
  }
  return { nodes: root === null ? [] : [root], prefix: undefined, kind: 'Workload' };
}

/** Place of a document in the manifest, and the values of its absent keys. */
interface DocumentContext {
  /** Prefix of the paths in messages: empty, or `[index].` within a list. */
  readonly prefix: string;
  readonly defaultKind: ManifestKind;
  readonly defaultNamespace: string;
}

/**
 * Reads one workload, service, route or config.
 * @returns Undefined for an empty document, and when kind, name, namespace or spec is missing or not
 *   usable. An invalid field of the spec is reported and left out.
 */
function readDocument(
  reader: YamlReader,
  document: Document.Parsed,
  node: Node | null,
  { prefix, defaultKind, defaultNamespace }: DocumentContext,
): ManifestObject | undefined {
  if (isEmptyScalar(node)) return undefined;
  const entries = reader.readEntries(document, node, node, prefix.slice(0, -1));
  if (entries === undefined) return undefined;
  const foreign = findForeignFormat(entries);
  if (foreign !== undefined) {
    const advice = 'convert the file with: cloudlessctl convert -f FILE';
    reader.report(node, prefix.slice(0, -1), `is a ${foreign}; ${advice}`);
    return undefined;
  }
  const kindEntry = entries.find(({ key }) => key === 'kind');
  const kind = kindEntry === undefined ? defaultKind : readKind(reader, kindEntry, `${prefix}kind`);
  let namespace: string | undefined = defaultNamespace;
  let name: string | undefined;
  let spec: Entry | undefined;
  const bodyKeys = kind === undefined ? ALL_KEYS : BODY_KEYS[kind];
  for (const entry of entries) {
    const path = `${prefix}${entry.key}`;
    if (entry.key === 'namespace') namespace = readLabel(reader, entry, path);
    else if (entry.key === 'name')
      name =
        kind === 'Config' ? readConfigName(reader, entry, path) : readLabel(reader, entry, path);
    else if (entry.key === 'spec' && kind !== 'Config') spec = entry;
    else if (!isKnownKey(entry.key, bodyKeys))
      reader.report(entry.keyNode, path, describeUnknownKey(entry.key, bodyKeys));
  }
  for (const key of ['name', kind === 'Config' ? 'data' : 'spec']) {
    if (key === 'data' && entries.some((entry) => /^binary_?data$/i.test(entry.key))) continue;
    if (!entries.some((entry) => entry.key === key))
      reader.report(node, `${prefix}${key}`, 'is missing');
  }
  const generation = readGeneration(reader, entries, prefix);
  const id =
    namespace === undefined || name === undefined
      ? undefined
      : { namespace, name, ...(generation === undefined ? {} : { generation }) };
  if (kind === 'Config') {
    const value = readConfigBody({ reader, document, entries, prefix }, id);
    return value === undefined ? undefined : { kind, value };
  }
  if (spec === undefined) return undefined;
  if (kind === 'Service') {
    const value = readServiceBody({ reader, document, entries, prefix }, id);
    return value === undefined ? undefined : { kind, value };
  }
  if (kind === 'Route') {
    const value = readRouteBody({ reader, document, entries, prefix }, id);
    return value === undefined ? undefined : { kind, value };
  }
  const json = readMessage(
    ...([reader, document, WorkloadSpecSchema] as const),
    ...([spec.value, spec.keyNode, `${prefix}spec`] as const),
  );
  if (kind === undefined || id === undefined || json === undefined) return undefined;
  return { kind, value: { ...id, spec: fromJson(WorkloadSpecSchema, json) } };
}

/** Returns what a document of another system is; undefined for a document of a manifest. */
function findForeignFormat(entries: readonly Entry[]): string | undefined {
  const find = (key: string): Entry | undefined => entries.find((entry) => entry.key === key);
  if (isMap(find('services')?.value) && find('spec') === undefined) return 'Compose file';
  const kind = find('kind')?.value;
  const isOurs =
    find('metadata') === undefined && KINDS.some((known) => isScalar(kind) && kind.value === known);
  return find('apiVersion') === undefined || kind === undefined || isOurs
    ? undefined
    : 'Kubernetes object';
}

/** Returns the kind of a document; reports a problem and returns undefined for any other text. */
function readKind(reader: YamlReader, entry: Entry, path: string): ManifestKind | undefined {
  const text = reader.readText(entry.value, entry.keyNode, path);
  const kind = KINDS.find((known) => known === text);
  if (text === undefined || kind !== undefined) return kind;
  const other = Object.hasOwn(OTHER_KINDS, text) ? `; ${OTHER_KINDS[text]}` : '';
  const expected = `expected ${KINDS.slice(0, -1).join(', ')} or ${KINDS.at(-1)}`;
  reader.report(entry.value, path, `${expected}, got ${describeNode(entry.value)}${other}`);
  return undefined;
}

/** Keys of a document of each kind beside kind, namespace and name. */
const BODY_KEYS: Readonly<Record<ManifestKind, readonly string[]>> = {
  Workload: ['spec'],
  Service: SERVICE_KEYS,
  Route: ROUTE_KEYS,
  Config: CONFIG_KEYS,
};

/** The keys of a document whose kind is not usable: only that problem is reported. */
const ALL_KEYS: readonly string[] = [...SERVICE_KEYS, ...CONFIG_KEYS, 'stringData', 'type'];

/** Returns true for keys that a document may have, also those that are ignored. */
function isKnownKey(key: string, bodyKeys: readonly string[]): boolean {
  return (
    key === 'kind' || key.startsWith('x-') || KEYS_SET_BY_CLUSTER.has(key) || bodyKeys.includes(key)
  );
}

/** Reads the name of a workload, service, route or namespace. */
function readLabel(reader: YamlReader, entry: Entry, path: string): string | undefined {
  const text = reader.readText(entry.value, entry.keyNode, path);
  if (text === undefined || isDnsLabel(text)) return text;
  reader.report(entry.value, path, `expected ${DNS_LABEL_RULE}, got ${describeNode(entry.value)}`);
  return undefined;
}

/** Reads the name of a config. */
function readConfigName(reader: YamlReader, entry: Entry, path: string): string | undefined {
  const text = reader.readText(entry.value, entry.keyNode, path);
  if (text === undefined || isObjectName(text)) return text;
  reader.report(
    entry.value,
    path,
    `expected ${OBJECT_NAME_RULE}, got ${describeNode(entry.value)}`,
  );
  return undefined;
}

function describeUnknownKey(key: string, bodyKeys: readonly string[]): string {
  if (key === 'apiVersion' || key === 'metadata')
    return 'unknown key; namespace, name and spec belong at the top level';
  return `unknown key${suggestKnown(key, ['kind', 'namespace', 'name', ...bodyKeys], '')}`;
}

/**
 * Keys of the output of `get -o yaml` that the cluster writes. They are ignored, so that the output
 * can be changed and applied; only `generation` is compared with the cluster, see
 * {@link ObjectId.generation}.
 */
const KEYS_SET_BY_CLUSTER = new Set([
  'status',
  'uid',
  'generation',
  'createdAt',
  'created_at',
  'deletionRequestedAt',
  'deletion_requested_at',
  'ownerWorkload',
  'owner_workload',
  'version',
  'versions',
  'updatedAt',
  'updated_at',
  'usedBy',
  'used_by',
  'usedByRoutes',
  'used_by_routes',
]);

function isEmptyScalar(node: Node | null): boolean {
  return node === null || ('value' in node && node.value === null);
}
