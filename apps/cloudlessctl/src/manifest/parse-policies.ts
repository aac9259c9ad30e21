import { fromJson } from '@bufbuild/protobuf';
import { isScalar, isSeq } from 'yaml';
import type { Document, Node } from 'yaml';
import { PolicySpecSchema, type PolicySpec } from '@cloudless/api';
import { definedFields } from '@cloudless/base';
import { suggestKnown } from '../suggest.js';
import { readGeneration } from './read-generation.js';
import { readMessage } from './read-message.js';
import { YamlReader, describeNode, type Entry, type Problem } from './yaml-reader.js';

/** A policy of a manifest. */
export interface ManifestPolicy {
  readonly name: string;
  readonly spec: PolicySpec;
  /**
   * The line `generation` of the output of `policy get -o yaml`. `policy apply` refuses a manifest
   * that would change a newer generation. Absent: the manifest applies to any generation.
   */
  readonly generation?: bigint;
}

/** The policies of a file. Must not be used unless `problems` is empty. */
export interface PolicyManifest {
  readonly policies: readonly ManifestPolicy[];
  readonly problems: readonly Problem[];
}

const KEYS = ['kind', 'name', 'spec'];
/**
 * Keys of the output of `policy get -o yaml` that the cluster writes. They are ignored; only
 * `generation` is compared with the cluster.
 */
const KEYS_SET_BY_CLUSTER: readonly string[] = ['uid', 'generation', 'createdAt', 'created_at'];

/**
 * Parses a file of policies: YAML or JSON with any number of documents `{ kind: Policy, name, spec }`
 * or lists of such maps. `kind` may be absent. The coordinator alone checks the values of rules.
 * @param file - File name for messages.
 * @returns The policies, and the problems of all documents. A file without policies is a problem.
 */
export function parsePolicies(file: string, bytes: Uint8Array): PolicyManifest {
  const reader = new YamlReader(file, bytes);
  const policies = new Map<string, ManifestPolicy>();
  for (const document of reader.problems.length > 0 ? [] : reader.documents) {
    const root = reader.resolveAlias(document, document.contents);
    if (root === null || (isScalar(root) && root.value === null)) continue;
    const items = isSeq(root) ? root.items : [root];
    items.forEach((item, index) => {
      const node = reader.resolveAlias(document, item as Node | null);
      const policy = readPolicy(reader, document, node, isSeq(root) ? `[${index}].` : '');
      if (policy === undefined) return;
      if (policies.has(policy.name))
        reader.report(node, '', `the policy ${policy.name} is declared twice`);
      policies.set(policy.name, policy);
    });
  }
  if (policies.size === 0 && reader.problems.length === 0)
    reader.report(null, '', 'contains no policy');
  return { policies: [...policies.values()], problems: reader.problems };
}

/** @returns Undefined when there are problems, which are reported with the position of their field. */
function readPolicy(
  reader: YamlReader,
  document: Document.Parsed,
  node: Node | null,
  prefix: string,
): ManifestPolicy | undefined {
  const before = reader.problems.length;
  const entries = reader.readEntries(document, node, node, prefix.slice(0, -1));
  if (entries === undefined) return undefined;
  for (const { key, keyNode } of entries) {
    if (KEYS.includes(key) || KEYS_SET_BY_CLUSTER.includes(key) || key.startsWith('x-')) continue;
    reader.report(keyNode, `${prefix}${key}`, `unknown key${suggestKnown(key, KEYS, '')}`);
  }
  const find = (key: string): Entry | undefined => entries.find((entry) => entry.key === key);
  const kind = find('kind');
  if (kind !== undefined && !(isScalar(kind.value) && kind.value.value === 'Policy')) {
    const message = `expected Policy, got ${describeNode(kind.value)}`;
    reader.report(kind.value ?? kind.keyNode, `${prefix}kind`, message);
  }
  const [name, spec] = ['name', 'spec'].map((key) => {
    const entry = find(key);
    if (entry === undefined) reader.report(node, `${prefix}${key}`, 'is missing');
    return entry;
  });
  const text = name && reader.readText(name.value, name.keyNode, `${prefix}name`);
  const json =
    spec &&
    readMessage(
      ...([reader, document, PolicySpecSchema] as const),
      ...([spec.value, spec.keyNode, `${prefix}spec`, { anyEnumSpelling: true }] as const),
    );
  const generation = readGeneration(reader, entries, prefix);
  if (reader.problems.length > before || text === undefined || json === undefined) return undefined;
  return { name: text, spec: fromJson(PolicySpecSchema, json), ...definedFields({ generation }) };
}
