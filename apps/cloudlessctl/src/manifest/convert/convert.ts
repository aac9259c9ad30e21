import { LineCounter, isMap as isYamlMap, isPair, isSeq, parseAllDocuments } from 'yaml';
import type { Document, Node } from 'yaml';
import { WorkloadSpecSchema } from '@cloudless/api';
import { parseManifest } from '../parse-manifest.js';
import { printYaml } from '../print-yaml.js';
import { MAX_ALIASES, MAX_FILE_BYTES } from '../yaml-reader.js';
import type { Problem } from '../yaml-reader.js';
import type { ConvertedObject, ConvertedWorkload, DeferredObjects } from './converted-object.js';
import type { ForeignKeys } from './file-references.js';
import { convertCompose, isComposeFile } from './compose.js';
import { convertKubernetes, isKubernetesObject } from './kubernetes.js';
import { SourceMap, isMap } from './source-map.js';
import type { ReportNote } from './source-map.js';

/** Result of a conversion. */
export interface Conversion {
  /** Manifest of the converted objects; empty when there is none. */
  readonly manifest: string;
  /** All that was left out or changed, by file and line of the source. */
  readonly notes: readonly Problem[];
}

/** A file to convert. */
export interface SourceFile {
  /** File name for messages. */
  readonly file: string;
  readonly bytes: Uint8Array;
}

/** A file with its documents. */
interface ReadFile {
  readonly file: string;
  readonly documents: readonly Document[];
  readonly values: readonly unknown[];
  readonly lines: LineCounter;
}

/**
 * Converts Compose files and Kubernetes objects to one manifest. Every key of a source is either
 * converted or named in a note. Objects of all files may refer to each other.
 * @param env - Values of the variables of Compose files.
 * @returns The conversion, or the problem of a source that cannot be read.
 */
export function convertManifests(
  sources: readonly SourceFile[],
  env: Readonly<Record<string, string | undefined>>,
): Conversion | { readonly problem: string } {
  const files: ReadFile[] = [];
  for (const { file, bytes } of sources) {
    const source = readSource(file, bytes);
    if ('problem' in source) return source;
    const values = source.documents.map(
      (document) => document.toJS({ maxAliasCount: MAX_ALIASES }) as unknown,
    );
    files.push({ file, values, ...source });
  }
  const all = files.flatMap(({ values }) => values);
  const known = { config: collectKeys(all, 'ConfigMap'), secret: collectKeys(all, 'Secret') };
  const notes: Problem[][] = [];
  const converted = files.flatMap(({ file, documents, values, lines }) => {
    const ofFile: Problem[] = [];
    notes.push(ofFile);
    return documents.flatMap((document, index) => {
      const report: ReportNote = (path, message) => {
        const { line, col } = lines.linePos(findOffset(document, path));
        ofFile.push({ file, line, column: col, path: formatPath(path), message });
      };
      return convertDocument(values[index], env, known, report);
    });
  });
  const workloads = converted.flatMap((each) =>
    typeof each !== 'function' && each.kind === 'Workload' ? [each] : [],
  );
  const objects = converted.flatMap((each) =>
    typeof each === 'function' ? each(workloads) : [each],
  );
  const manifest = printObjects(objects);
  const sorted = notes.map((ofFile) =>
    ofFile.sort((a, b) => a.line - b.line || a.column - b.column),
  );
  return { manifest, notes: [...sorted.flat(), ...checkManifest(manifest)] };
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
): readonly (ConvertedObject | DeferredObjects)[] {
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
        ...(object.kind === 'Workload' ? { spec: sortFields(object.spec) } : object.body),
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
