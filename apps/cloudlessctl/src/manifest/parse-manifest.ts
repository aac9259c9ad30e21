import { fromJson } from '@bufbuild/protobuf';
import type { JsonValue } from '@bufbuild/protobuf';
import { isMap, isSeq } from 'yaml';
import type { Document, Node } from 'yaml';
import { WorkloadSpecSchema } from '@cloudless/api';
import type { WorkloadSpec } from '@cloudless/api';
import { DNS_LABEL_RULE, isDnsLabel } from '../dns-label.js';
import { suggestKnown } from '../suggest.js';
import { readMessage } from './read-message.js';
import { YamlReader, describeNode } from './yaml-reader.js';
import type { Entry, Problem } from './yaml-reader.js';

/** A workload of a manifest. */
export interface ManifestWorkload {
  readonly namespace: string;
  readonly name: string;
  readonly spec: WorkloadSpec;
}

/** The content of a manifest file. The workloads must not be used unless `problems` is empty. */
export interface Manifest {
  readonly workloads: readonly ManifestWorkload[];
  readonly problems: readonly Problem[];
}

/**
 * Parses a manifest: YAML or JSON with any number of documents `{ kind?, namespace?, name, spec }`
 * or lists of such maps. Keys that begin with `x-` beside `spec` are ignored: a place for anchors.
 * @param file - File name for messages.
 * @param defaultNamespace - Namespace of documents without a namespace.
 * @returns The workloads, and the problems of all documents. A file without a workload is a
 *   problem.
 */
export function parseManifest(file: string, bytes: Uint8Array, defaultNamespace: string): Manifest {
  const reader = new YamlReader(file, bytes);
  if (reader.problems.length > 0) return { workloads: [], problems: reader.problems };
  const workloads: ManifestWorkload[] = [];
  const seen = new Set<string>();
  for (const document of reader.documents) {
    const { nodes, prefix } = findWorkloadNodes(reader, document);
    nodes.forEach((node, index) => {
      const workload = readDocument(
        reader,
        document,
        node,
        prefix === undefined ? '' : `${prefix}[${index}].`,
        defaultNamespace,
      );
      if (workload === undefined) return;
      const key = `${workload.namespace}/${workload.name}`;
      if (seen.has(key)) reader.report(node, '', `the workload ${key} is declared twice`);
      seen.add(key);
      workloads.push(workload);
    });
  }
  if (workloads.length === 0 && reader.problems.length === 0)
    reader.report(null, '', 'contains no workload');
  return { workloads, problems: reader.problems };
}

/**
 * Returns the nodes of the workloads of a document: the document itself, the items of a list, or
 * the items of `workloads`, as in the output of `get -o yaml`.
 * @returns `prefix`: path of the list; undefined when the document is one workload.
 */
function findWorkloadNodes(
  reader: YamlReader,
  document: Document.Parsed,
): { readonly nodes: readonly (Node | null)[]; readonly prefix: string | undefined } {
  const root = reader.resolveAlias(document, document.contents);
  const list = isMap(root) && root.items.length === 1 ? root.get('workloads', true) : undefined;
  const items = isSeq(root) ? root : isSeq(list) ? list : undefined;
  if (items === undefined) return { nodes: root === null ? [] : [root], prefix: undefined };
  return {
    nodes: items.items.map((item) => reader.resolveAlias(document, item as Node | null)),
    prefix: items === root ? '' : 'workloads',
  };
}

/**
 * Reads one workload.
 * @param prefix - Prefix of the paths in messages: empty, or `[index].` within a list.
 * @returns Undefined for an empty document, and when name, namespace or spec is missing or not
 *   usable. An invalid field of the spec is reported and left out.
 */
function readDocument(
  reader: YamlReader,
  document: Document.Parsed,
  node: Node | null,
  prefix: string,
  defaultNamespace: string,
): ManifestWorkload | undefined {
  if (isEmptyScalar(node)) return undefined;
  const entries = reader.readEntries(document, node, node, prefix.slice(0, -1));
  if (entries === undefined) return undefined;
  let namespace: string | undefined = defaultNamespace;
  let name: string | undefined;
  let spec: JsonValue | undefined;
  for (const entry of entries) {
    const path = `${prefix}${entry.key}`;
    if (entry.key === 'kind') readKind(reader, entry, path);
    else if (entry.key === 'namespace') namespace = readLabel(reader, entry, path);
    else if (entry.key === 'name') name = readLabel(reader, entry, path);
    else if (entry.key === 'spec')
      spec = readMessage(reader, document, WorkloadSpecSchema, entry.value, entry.keyNode, path);
    else if (!entry.key.startsWith('x-') && !KEYS_SET_BY_CLUSTER.has(entry.key))
      reader.report(entry.keyNode, path, describeUnknownKey(entry.key));
  }
  for (const key of ['name', 'spec']) {
    if (!entries.some((entry) => entry.key === key))
      reader.report(node, `${prefix}${key}`, 'is missing');
  }
  if (namespace === undefined || name === undefined || spec === undefined) return undefined;
  return { namespace, name, spec: fromJson(WorkloadSpecSchema, spec) };
}

/** Reports a problem unless the optional key `kind` has the value `Workload`. */
function readKind(reader: YamlReader, entry: Entry, path: string): void {
  const kind = reader.readText(entry.value, entry.keyNode, path);
  if (kind !== undefined && kind !== 'Workload') {
    const hint =
      kind === 'Service' ? '; use spec.expose of the workload, or cloudlessctl service create' : '';
    reader.report(entry.value, path, `expected Workload, got ${describeNode(entry.value)}${hint}`);
  }
}

/** Reads the name of a workload or namespace. */
function readLabel(reader: YamlReader, entry: Entry, path: string): string | undefined {
  const text = reader.readText(entry.value, entry.keyNode, path);
  if (text === undefined || isDnsLabel(text)) return text;
  reader.report(entry.value, path, `expected ${DNS_LABEL_RULE}, got ${describeNode(entry.value)}`);
  return undefined;
}

function describeUnknownKey(key: string): string {
  if (key === 'apiVersion' || key === 'metadata')
    return 'unknown key; namespace, name and spec belong at the top level';
  return `unknown key${suggestKnown(key, ['kind', 'namespace', 'name', 'spec'], '')}`;
}

/**
 * Keys of the output of `get -o yaml` that the cluster writes. They are ignored, so that the output
 * can be changed and applied.
 */
const KEYS_SET_BY_CLUSTER = new Set([
  'status',
  'uid',
  'generation',
  'createdAt',
  'created_at',
  'deletionRequestedAt',
  'deletion_requested_at',
]);

function isEmptyScalar(node: Node | null): boolean {
  return node === null || ('value' in node && node.value === null);
}
