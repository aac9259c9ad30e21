import { LineCounter, isMap as isYamlMap, isPair, isSeq, parseAllDocuments } from 'yaml';
import type { Document, Node } from 'yaml';
import { WorkloadSpecSchema } from '@cloudless/api';
import { parseManifest } from '../parse-manifest.js';
import { printYaml } from '../print-yaml.js';
import { MAX_ALIASES, MAX_FILE_BYTES } from '../yaml-reader.js';
import type { Problem } from '../yaml-reader.js';
import type { ConvertedObject, ConvertedWorkload } from './converted-object.js';
import type { ForeignKeys } from './file-references.js';
import { convertCompose, isComposeFile } from './compose.js';
import { convertKubernetes, isKubernetesObject } from './kubernetes.js';
import { SourceMap, isMap } from './source-map.js';
import type { ReportNote } from './source-map.js';

/** Result of a conversion. */
export interface Conversion {
  /** Manifest of the converted workloads; empty when there is none. */
  readonly manifest: string;
  /** All that was left out or changed, by line of the source. */
  readonly notes: readonly Problem[];
}

/**
 * Converts a Compose file, or Kubernetes objects, to a manifest. Every key of the source is either
 * converted or named in a note.
 * @param file - File name for messages.
 * @param env - Values of the variables of a Compose file.
 * @returns The conversion, or the problem of a source that cannot be read.
 */
export function convertManifest(
  file: string,
  bytes: Uint8Array,
  env: Readonly<Record<string, string | undefined>>,
): Conversion | { readonly problem: string } {
  const source = readSource(file, bytes);
  if ('problem' in source) return source;
  const { documents, lines } = source;
  const values = documents.map(
    (document) => document.toJS({ maxAliasCount: MAX_ALIASES }) as unknown,
  );
  const known = {
    config: collectKeys(values, 'ConfigMap'),
    secret: collectKeys(values, 'Secret'),
  };
  const notes: Problem[] = [];
  const objects = documents.flatMap((document, index) => {
    const report: ReportNote = (path, message) => {
      const { line, col } = lines.linePos(findOffset(document, path));
      notes.push({ file, line, column: col, path: formatPath(path), message });
    };
    return convertDocument(values[index], env, known, report);
  });
  notes.sort((a, b) => a.line - b.line || a.column - b.column);
  const manifest = printObjects(objects);
  return { manifest, notes: [...notes, ...checkManifest(manifest)] };
}

function readSource(
  file: string,
  bytes: Uint8Array,
):
  | { readonly documents: readonly Document[]; readonly lines: LineCounter }
  | { readonly problem: string } {
  if (bytes.length > MAX_FILE_BYTES) return { problem: `${file}: larger than 1 MiB` };
  const lines = new LineCounter();
  const text = new TextDecoder().decode(bytes);
  const parsed = parseAllDocuments(text, {
    merge: true,
    lineCounter: lines,
    prettyErrors: false,
    logLevel: 'silent',
  });
  const documents = 'empty' in parsed ? [] : parsed;
  for (const { errors } of documents) {
    const [error] = errors;
    if (error === undefined) continue;
    const { line, col } = lines.linePos(error.pos[0]);
    return { problem: `${file}:${line}:${col}: ${error.message}` };
  }
  const known = documents.filter((document) => document.contents !== null);
  return known.length === 0
    ? { problem: `${file}: contains nothing to convert` }
    : { documents: known, lines };
}

function convertDocument(
  value: unknown,
  env: Readonly<Record<string, string | undefined>>,
  known: Omit<ForeignKeys, 'namespace'>,
  report: ReportNote,
): readonly ConvertedObject[] {
  if (isComposeFile(value)) return convertCompose(value, env, report);
  if (!isKubernetesObject(value)) {
    report([], 'left out: neither a Compose file with services nor a Kubernetes object');
    return [];
  }
  if (!isMap(value) || value['kind'] !== 'List') return convertKubernetes(value, known, report);
  return listItems(value).flatMap((item, index) =>
    convertKubernetes(item, known, (path, message) => report(['items', index, ...path], message)),
  );
}

/** Returns the keys of all objects of a kind by `namespace/name`. */
function collectKeys(
  values: readonly unknown[],
  kind: 'ConfigMap' | 'Secret',
): ReadonlyMap<string, readonly string[]> {
  const ignoreNote: ReportNote = () => undefined; // the object itself is reported by its conversion
  return new Map(
    values
      .flatMap((value) => [value, ...listItems(value)])
      .filter((value) => isMap(value) && value['kind'] === kind)
      .map((value) => {
        const object = new SourceMap(value, [], ignoreNote);
        const metadata = object.takeMap('metadata');
        const name = `${metadata.takeText('namespace') ?? 'default'}/${metadata.takeText('name') ?? ''}`;
        const keys = ['data', 'stringData', 'binaryData'].flatMap(
          (field) => object.takeMap(field).keys,
        );
        return [name, [...new Set(keys)]];
      }),
  );
}

/** Returns the items of a Kubernetes List; empty for any other value. */
function listItems(value: unknown): readonly unknown[] {
  const items = isMap(value) && value['kind'] === 'List' ? value['items'] : undefined;
  return Array.isArray(items) ? items : [];
}

function printObjects(objects: readonly ConvertedObject[]): string {
  return objects
    .map((object) =>
      printYaml({
        kind: object.kind,
        ...(object.namespace === undefined ? {} : { namespace: object.namespace }),
        name: object.name,
        ...(object.kind === 'Config' ? object.body : { spec: sortFields(object.spec) }),
      }),
    )
    .join('---\n');
}

/** Sorts the fields of a spec as its documentation does. */
function sortFields(spec: ConvertedWorkload['spec']): Record<string, unknown> {
  const order = WorkloadSpecSchema.fields.map(({ jsonName }) => jsonName);
  return Object.fromEntries(
    Object.entries(spec).sort(([a], [b]) => order.indexOf(a) - order.indexOf(b)),
  );
}

/** Returns the problems of the result, which stem from values that a manifest does not accept. */
function checkManifest(manifest: string): readonly Problem[] {
  if (manifest === '') return [];
  return parseManifest('the converted manifest', new TextEncoder().encode(manifest), 'default')
    .problems;
}

/** Returns the position of the key at `path`, or of the nearest enclosing key that exists. */
function findOffset(document: Document, path: readonly (string | number)[]): number {
  let node = document.contents as Node | null;
  let offset = node?.range?.[0] ?? 0;
  for (const part of path) {
    if (isYamlMap(node)) {
      const pair = node.items.find(
        (item) => isPair(item) && String((item.key as { value?: unknown } | null)?.value) === part,
      );
      if (pair === undefined) break;
      offset = (pair.key as Node | null)?.range?.[0] ?? offset;
      node = pair.value as Node | null;
    } else if (isSeq(node) && typeof part === 'number') {
      const item = node.items[part] as Node | undefined;
      if (item === undefined) break;
      offset = item.range?.[0] ?? offset;
      node = item;
    } else break;
  }
  return offset;
}

/** Formats a path: `services.web.ports[0]`. */
function formatPath(path: readonly (string | number)[]): string {
  return path
    .map((part, index) =>
      typeof part === 'number' ? `[${part}]` : index === 0 ? part : `.${part}`,
    )
    .join('');
}
