import { ScalarType } from '@bufbuild/protobuf';
import type { DescEnum, DescField, DescMessage, JsonValue } from '@bufbuild/protobuf';
import { isScalar } from 'yaml';
import type { Document, Node } from 'yaml';
import { findEnumName } from '../flags/enum-words.js';
import { suggestSimilar } from '../suggest.js';
import { readScalar, readWellKnown } from './read-scalar.js';
import { MAX_DEPTH, describeNode } from './yaml-reader.js';
import type { YamlReader } from './yaml-reader.js';

/** The position of the current value in the document. */
interface Position {
  readonly document: Document.Parsed;
  /** Node that gives the line number when the value itself is absent. */
  readonly anchor: Node | null;
  /** Path such as `spec.ports[0].name`. */
  readonly path: string;
  /** Number of enclosing maps and lists, from 1. */
  readonly depth: number;
  readonly anyEnumSpelling: boolean;
}

/** Options of reading a message. */
export interface ReadOptions {
  /**
   * True: enum values are read in any spelling that flags accept, such as `NodePort` or `node-port`
   * for `NODE_PORT`. Default: false, only the names of the schema.
   */
  readonly anyEnumSpelling?: boolean;
}

/**
 * Reads a node as a message of `schema`: keys in camelCase or snake_case, enums by name, durations
 * and quantities with units. Problems are reported to `reader`.
 * @param anchor - Node that gives the line number when `node` is absent.
 * @param path - Path of the message, for messages.
 * @returns The message in protobuf JSON without the invalid fields; undefined when the node is not
 *   a map.
 */
export function readMessage(
  reader: YamlReader,
  document: Document.Parsed,
  schema: DescMessage,
  node: Node | null,
  anchor: Node | null,
  path: string,
  { anyEnumSpelling = false }: ReadOptions = {},
): JsonValue | undefined {
  const position = { document, anchor, path, depth: 1, anyEnumSpelling };
  return readMessageValue(reader, schema, node, position);
}

function readMessageValue(
  reader: YamlReader,
  schema: DescMessage,
  node: Node | null,
  position: Position,
): JsonValue | undefined {
  const wellKnown = readWellKnown(schema, node);
  if (wellKnown !== undefined) return reportProblem(reader, node, position, wellKnown);
  if (isTooDeep(reader, node, position)) return undefined;
  const entries = reader.readEntries(position.document, node, position.anchor, position.path);
  if (entries === undefined) return undefined;
  const result: Record<string, JsonValue> = {};
  /** The key that set each field or oneof. */
  const seen = new Map<string, string>();
  for (const entry of entries) {
    const field = schema.fields.find(
      ({ jsonName, name }) => jsonName === entry.key || name === entry.key,
    );
    const path = `${position.path}.${entry.key}`;
    if (field === undefined) {
      reader.reportUnknownKey(entry, path, listFieldNames(schema, entry.key));
      continue;
    }
    // A field of a oneof excludes the other fields; camelCase and snake_case exclude each other.
    const group = field.oneof?.name ?? field.name;
    const previousKey = seen.get(group);
    if (previousKey !== undefined) {
      reader.report(entry.keyNode, path, `cannot be given together with ${previousKey}`);
      continue;
    }
    seen.set(group, entry.key);
    const value = readFieldValue(reader, field, entry.value, {
      ...position,
      anchor: entry.keyNode,
      path,
      depth: position.depth + 1,
    });
    if (value !== undefined) result[field.jsonName] = value;
  }
  return result;
}

function readFieldValue(
  reader: YamlReader,
  field: DescField,
  node: Node | null,
  position: Position,
): JsonValue | undefined {
  switch (field.fieldKind) {
    case 'message':
      return readMessageValue(reader, field.message, node, position);
    case 'enum':
      return readEnumValue(reader, field.enum, node, position);
    case 'scalar':
      return reportProblem(reader, node, position, readScalar(field, field.scalar, node));
    case 'list':
      return readListValue(reader, field, node, position);
    case 'map':
      return readMapValue(reader, field, node, position);
  }
}

function readListValue(
  reader: YamlReader,
  field: DescField & { fieldKind: 'list' },
  node: Node | null,
  position: Position,
): JsonValue | undefined {
  if (isTooDeep(reader, node, position)) return undefined;
  return reader
    .readItems(position.document, node, position.anchor, position.path)
    ?.flatMap((item, index) => {
      const inner = {
        ...position,
        anchor: item ?? node,
        path: `${position.path}[${index}]`,
        depth: position.depth + 1,
      };
      const value = readElementValue(reader, field, field.listKind, item, inner);
      return value === undefined ? [] : [value];
    });
}

function readMapValue(
  reader: YamlReader,
  field: DescField & { fieldKind: 'map' },
  node: Node | null,
  position: Position,
): JsonValue | undefined {
  if (isTooDeep(reader, node, position)) return undefined;
  const entries = reader.readEntries(position.document, node, position.anchor, position.path);
  if (entries === undefined) return undefined;
  const result: Record<string, JsonValue> = {};
  for (const { key, keyNode, value: item } of entries) {
    const path = `${position.path}[${JSON.stringify(key)}]`;
    if (key === '__proto__' || field.mapKey !== ScalarType.STRING) {
      reader.report(keyNode, path, 'cannot be used as a key');
      continue;
    }
    const value = readElementValue(reader, field, field.mapKind, item, {
      ...position,
      anchor: keyNode,
      path,
      depth: position.depth + 1,
    });
    if (value !== undefined) result[key] = value;
  }
  return result;
}

/** Reads an item of a list, or a value of a map. */
function readElementValue(
  reader: YamlReader,
  field: DescField & { fieldKind: 'list' | 'map' },
  kind: 'message' | 'enum' | 'scalar',
  node: Node | null,
  position: Position,
): JsonValue | undefined {
  if (kind === 'message' && field.message !== undefined)
    return readMessageValue(reader, field.message, node, position);
  if (kind === 'enum' && field.enum !== undefined)
    return readEnumValue(reader, field.enum, node, position);
  return reportProblem(
    reader,
    node,
    position,
    readScalar(field, field.scalar ?? ScalarType.STRING, node),
  );
}

function readEnumValue(
  reader: YamlReader,
  schema: DescEnum,
  node: Node | null,
  position: Position,
): JsonValue | undefined {
  const names = schema.values.map(({ name }) => name);
  if (isScalar(node) && typeof node.value === 'string') {
    if (names.includes(node.value)) return node.value;
    const found = position.anyEnumSpelling ? findEnumName(node.value, names) : undefined;
    if (found !== undefined) return found;
    const hint = suggestSimilar(node.value, names);
    return reportProblem(reader, node, position, {
      problem: `expected one of ${names.join(', ')}, got ${describeNode(node)}${hint}`,
    });
  }
  return reportProblem(reader, node, position, {
    problem: `expected one of ${names.join(', ')}, got ${describeNode(node)}`,
  });
}

/** Returns the parsed value; reports a problem and returns undefined when there is one. */
function reportProblem(
  reader: YamlReader,
  node: Node | null,
  position: Position,
  parsed: { readonly value: JsonValue } | { readonly problem: string },
): JsonValue | undefined {
  if ('value' in parsed) return parsed.value;
  reader.report(node ?? position.anchor, position.path, parsed.problem);
  return undefined;
}

function isTooDeep(reader: YamlReader, node: Node | null, position: Position): boolean {
  if (position.depth <= MAX_DEPTH) return false;
  reader.report(
    node ?? position.anchor,
    position.path,
    `more than ${MAX_DEPTH} nested maps and lists`,
  );
  return true;
}

/** The field names in the spelling of `key` (camelCase or snake_case), for suggestions. */
function listFieldNames(schema: DescMessage, key: string): readonly string[] {
  return schema.fields.map((field) => (key.includes('_') ? field.name : field.jsonName));
}
