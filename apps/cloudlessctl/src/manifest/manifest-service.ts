import { create, fromJson } from '@bufbuild/protobuf';
import type { DescMessage, JsonValue } from '@bufbuild/protobuf';
import { isMap, isSeq } from 'yaml';
import type { Document, Node } from 'yaml';
import {
  CreateServiceRequestSchema,
  ServiceSpecSchema,
  checkBalancing,
  checkService,
} from '@cloudless/api';
import type { CreateServiceRequest, LoadBalancerConfig, ServiceSpec } from '@cloudless/api';
import { InvalidInputError, toSnakeCase, type Violation } from '@cloudless/base';
import { readMessage } from './read-message.js';
import type { Entry, YamlReader } from './yaml-reader.js';

/** A service of a manifest. */
export interface ManifestService {
  readonly namespace: string;
  readonly name: string;
  readonly spec: ServiceSpec;
  readonly labels: Readonly<Record<string, string>>;
  /** Undefined: the defaults of the balancing. */
  readonly loadBalancer: LoadBalancerConfig | undefined;
}

/** Keys of a service beside kind, namespace and name. `load_balancer` is accepted too. */
export const SERVICE_KEYS: readonly string[] = ['spec', 'labels', 'loadBalancer', 'load_balancer'];

/** Fields of the request, with the keys of the manifest that have their form. */
const BODY = CreateServiceRequestSchema.fields.filter(({ jsonName }) =>
  SERVICE_KEYS.includes(jsonName),
);

/** The entries of a document that describes a service. */
export interface ServiceEntries {
  readonly reader: YamlReader;
  readonly document: Document.Parsed;
  readonly entries: readonly Entry[];
  /** Prefix of the paths in messages: empty, or `[index].` within a list. */
  readonly prefix: string;
}

/**
 * Reads a service, and checks combinations of fields as the coordinator does. The coordinator alone
 * checks ranges and lengths, whose rules are part of its proto.
 * @param id - Undefined when the name or the namespace is not usable; the fields are then read for
 *   their problems only.
 * @returns Undefined when there are problems, which are reported with the position of their field.
 */
export function readServiceBody(
  { reader, document, entries, prefix }: ServiceEntries,
  id: { readonly namespace: string; readonly name: string } | undefined,
): ManifestService | undefined {
  const before = reader.problems.length;
  const body: Record<string, JsonValue> = {};
  for (const field of BODY) {
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
  const request = fromJson(CreateServiceRequestSchema, { ...id, ...body });
  for (const { field, message } of findViolations(request)) {
    const place = locate(document, entries, field);
    reader.report(place.node, `${prefix}${place.path}`, message);
  }
  if (reader.problems.length > before || request.spec === undefined) return undefined;
  const { namespace, name, spec, labels, loadBalancer } = request;
  return { namespace, name, spec, labels, loadBalancer };
}

/** Reads a field of the request: a message, or the map of labels. */
function readField(
  reader: YamlReader,
  document: Document.Parsed,
  field: (typeof BODY)[number],
  entry: Entry,
  path: string,
): JsonValue | undefined {
  if (field.message !== undefined)
    return readServiceMessage(reader, document, field.message, entry, path);
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

function readServiceMessage(
  reader: YamlReader,
  document: Document.Parsed,
  schema: DescMessage,
  { value, keyNode }: Entry,
  path: string,
): JsonValue | undefined {
  return readMessage(reader, document, schema, value, keyNode, path, { anyEnumSpelling: true });
}

/** Returns the combinations that the coordinator would refuse, by field of the request. */
function findViolations(request: CreateServiceRequest): readonly Violation[] {
  const checks = [
    () => checkService(request.spec ?? create(ServiceSpecSchema)),
    () => checkBalancing(request.loadBalancer, 'load_balancer'),
  ];
  for (const check of checks) {
    try {
      check();
    } catch (reason) {
      if (reason instanceof InvalidInputError) return reason.violations;
      throw reason;
    }
  }
  return [];
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
