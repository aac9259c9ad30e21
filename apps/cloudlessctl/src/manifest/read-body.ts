import { fromJson } from '@bufbuild/protobuf';
import type { DescField, DescMessage, JsonValue, MessageShape } from '@bufbuild/protobuf';
import { isMap, isSeq } from 'yaml';
import type { Document, Node } from 'yaml';
import { InvalidInputError, toSnakeCase, type Violation } from '@cloudless/base';
import { readMessage } from './read-message.js';
import type { Entry, YamlReader } from './yaml-reader.js';

/** The entries of a document that describes an object. */
export interface ObjectEntries {
  readonly reader: YamlReader;
  readonly document: Document.Parsed;
  readonly entries: readonly Entry[];
  /** Prefix of the paths in messages: empty, or `[index].` within a list. */
  readonly prefix: string;
}

/** Namespace and name of an object, and the generation that its manifest was printed from. */
export interface ObjectId {
  readonly namespace: string;
  readonly name: string;
  /**
   * The line `generation` of the output of `get -o yaml`. `apply` refuses a manifest that would
   * change a newer generation. Absent: the manifest applies to any generation.
   */
  readonly generation?: bigint;
}

/** A kind whose documents have the fields of the request that creates the object. */
export interface RequestKind<Desc extends DescMessage> {
  /** The request, with the fields `namespace` and `name`. */
  readonly schema: Desc;
  /** Keys beside kind, namespace and name, in both spellings. */
  readonly keys: readonly string[];
  /**
   * Checks of combinations of fields, as the coordinator makes them. They throw
   * {@link InvalidInputError} with paths from the request on.
   */
  readonly checks: readonly ((request: MessageShape<Desc>) => void)[];
}

/**
 * Reads the fields of a document, and checks their combinations. The coordinator alone checks ranges
 * and lengths, whose rules are part of its proto.
 * @param id - Undefined when the name or the namespace is not usable; the fields are then read for
 *   their problems only.
 * @returns Undefined when there are problems, which are reported with the position of their field.
 */
export function readRequestBody<Desc extends DescMessage>(
  { schema, keys, checks }: RequestKind<Desc>,
  { reader, document, entries, prefix }: ObjectEntries,
  id: ObjectId | undefined,
): MessageShape<Desc> | undefined {
  const before = reader.problems.length;
  const body: Record<string, JsonValue> = {};
  for (const field of schema.fields.filter(({ jsonName }) => keys.includes(jsonName))) {
    const [entry, other] = entries.filter(
      ({ key }) => key === field.jsonName || key === field.name,
    );
    if (entry === undefined) continue;
    if (other !== undefined) {
      const message = `cannot be given together with ${entry.key}`;
      reader.report(other.keyNode, `${prefix}${other.key}`, message);
    }
    const json = readField(reader, document, field, entry, `${prefix}${entry.key}`);
    if (json !== undefined) body[field.jsonName] = json;
  }
  if (reader.problems.length > before || id === undefined) return undefined;
  const { namespace, name } = id;
  const request = fromJson(schema, { namespace, name, ...body });
  for (const { field, message } of checks.flatMap((check) => findViolations(check, request))) {
    const place = locate(document, entries, field);
    reader.report(place.node, `${prefix}${place.path}`, message);
  }
  return reader.problems.length > before ? undefined : request;
}

/** Reads a field of the request: a message, or the map of labels. */
function readField(
  reader: YamlReader,
  document: Document.Parsed,
  field: DescField,
  entry: Entry,
  path: string,
): JsonValue | undefined {
  if (field.message !== undefined)
    return readBodyMessage(reader, document, field.message, entry, path);
  const labels = reader.readEntries(document, entry.value, entry.keyNode, path);
  return (
    labels &&
    Object.fromEntries(
      labels.map(({ key, keyNode, value }) => [
        key,
        reader.readText(value, keyNode, `${path}[${JSON.stringify(key)}]`) ?? '',
      ]),
    )
  );
}

function readBodyMessage(
  reader: YamlReader,
  document: Document.Parsed,
  schema: DescMessage,
  { value, keyNode }: Entry,
  path: string,
): JsonValue | undefined {
  return readMessage(reader, document, schema, value, keyNode, path, { anyEnumSpelling: true });
}

/** Returns the violations that a check throws. */
function findViolations<Request>(
  check: (request: Request) => void,
  request: Request,
): readonly Violation[] {
  try {
    check(request);
    return [];
  } catch (reason) {
    if (reason instanceof InvalidInputError) return reason.violations;
    throw reason;
  }
}

/** Finds the deepest node on the path of a field, and the path as the manifest spells it. */
function locate(
  document: Document.Parsed,
  entries: readonly Entry[],
  field: string,
): { readonly node: Node | null; readonly path: string } {
  const [head = '', ...parts] = field.match(/\["(?:[^"\\]|\\.)*"\]|\[\d+\]|[^.[]+/g) ?? [];
  const top = entries.find(({ key }) => isSameKey(key, head));
  let node: Node | null = top?.value ?? null;
  let path = top?.key ?? head;
  let isFound = top !== undefined;
  for (const part of parts) {
    const [, index] = /^\[(\d+)\]$/.exec(part) ?? [];
    const found: { key: string; value: unknown } | undefined = !isFound
      ? undefined
      : index !== undefined && isSeq(node)
        ? { key: part, value: node.items[Number(index)] }
        : isMap(node)
          ? node.items
              .map(({ key, value }) => ({ key: String(key), value }))
              .find(({ key }) => isSameKey(key, part) || JSON.stringify(key) === part.slice(1, -1))
          : undefined;
    isFound = found?.value !== undefined && found.value !== null;
    if (isFound) node = found?.value as Node;
    path += index === undefined && !part.startsWith('[') ? `.${found?.key ?? part}` : part;
  }
  return { node: node ?? document.contents, path };
}

/** Returns true for a key in camelCase or snake_case that means the field in snake_case. */
function isSameKey(key: string, field: string): boolean {
  return key === field || toSnakeCase(key) === field;
}
