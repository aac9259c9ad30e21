import { isScalar } from 'yaml';
import { findValueProblem, type Values } from '../value-rules.js';
import { describeNode, type Entry } from './yaml-reader.js';
import type { ObjectEntries, ObjectId } from './read-body.js';

/** A config of a manifest. */
export interface ManifestConfig extends ObjectId {
  readonly labels: Readonly<Record<string, string>>;
  readonly immutable: boolean;
  readonly data: Values;
}

/** Keys of a config beside kind, namespace and name. */
export const CONFIG_KEYS: readonly string[] = [
  'data',
  'binaryData',
  'binary_data',
  'labels',
  'immutable',
];

/**
 * Reads a config: texts in `data`, and bytes as base64 text in `binaryData`.
 * @param id - Undefined when the name or the namespace is not usable; the fields are then read for
 *   their problems only.
 * @returns Undefined when there are problems, which are reported with the position of their field.
 */
export function readConfigBody(
  body: ObjectEntries,
  id: ObjectId | undefined,
): ManifestConfig | undefined {
  const { reader, entries, prefix } = body;
  const before = reader.problems.length;
  const find = (...keys: readonly string[]): Entry | undefined =>
    entries.find(({ key }) => keys.includes(key));
  const data: Record<string, Uint8Array> = {};
  const texts = find('data');
  const binary = find('binaryData', 'binary_data');
  for (const [entry, decode] of [
    [texts, encodeText],
    [binary, decodeBase64],
  ] as const) {
    if (entry === undefined) continue;
    for (const { key, keyNode, value } of readMap(body, entry)) {
      const path = `${prefix}${entry.key}[${JSON.stringify(key)}]`;
      const text = reader.readText(value, keyNode, path);
      if (text === undefined) continue;
      const bytes = decode(text);
      if (bytes === undefined) reader.report(value, path, 'expected base64 text');
      else if (Object.hasOwn(data, key)) reader.report(keyNode, path, 'is also a key of data');
      else data[key] = bytes;
    }
  }
  const labels = Object.fromEntries(
    readMap(body, find('labels')).map(({ key, keyNode, value }) => [
      key,
      reader.readText(value, keyNode, `${prefix}labels[${JSON.stringify(key)}]`) ?? '',
    ]),
  );
  const immutable = readFlag(body, find('immutable'));
  const problem =
    Object.keys(data).length === 0 ? 'a config needs at least one value' : findValueProblem(data);
  if (reader.problems.length === before && problem !== undefined)
    reader.report((texts ?? binary)?.keyNode ?? null, `${prefix}data`, problem);
  if (reader.problems.length > before || id === undefined) return undefined;
  return { ...id, labels, immutable, data };
}

function readMap(
  { reader, document, prefix }: ObjectEntries,
  entry: Entry | undefined,
): readonly Entry[] {
  if (entry === undefined) return [];
  return reader.readEntries(document, entry.value, entry.keyNode, `${prefix}${entry.key}`) ?? [];
}

function readFlag({ reader, prefix }: ObjectEntries, entry: Entry | undefined): boolean {
  if (entry === undefined) return false;
  const value = isScalar(entry.value) ? entry.value.value : undefined;
  if (typeof value === 'boolean') return value;
  reader.report(
    entry.value ?? entry.keyNode,
    `${prefix}immutable`,
    `expected true or false, got ${describeNode(entry.value)}`,
  );
  return false;
}

function encodeText(text: string): Uint8Array {
  return new TextEncoder().encode(text);
}

function decodeBase64(text: string): Uint8Array | undefined {
  const plain = text.replaceAll(/\s/g, '');
  return /^[A-Za-z0-9+/]*={0,2}$/.test(plain) && plain.length % 4 === 0
    ? new Uint8Array(Buffer.from(plain, 'base64'))
    : undefined;
}
