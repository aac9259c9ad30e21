import {
  clone,
  toJson,
  type DescField,
  type DescMessage,
  type JsonValue,
  type MessageShape,
} from '@bufbuild/protobuf';
import { reflect, type ReflectMessage } from '@bufbuild/protobuf/reflect';
import { definedFields, InvalidInputError } from '@cloudless/base';
import { WorkloadSpecSchema, type WorkloadSpec } from '../gen.js';

/** A field that differs between two specs, or between two other messages. */
export interface SpecDifference {
  /** Path below `spec`, or below the message, in proto spelling: `rollout.max_surge`. */
  readonly path: string;
  /** Previous value in JSON. Absent when the field was not set. */
  readonly before?: JsonValue;
  /** New value in JSON. Absent when the field is no longer set. */
  readonly after?: JsonValue;
}

/**
 * Applies an update to a spec.
 * @param patch - The spec of the request.
 * @param paths - The update mask. Undefined or empty: the fields that are set in `patch` change;
 *   messages are merged field by field, and lists, maps and scalars are replaced. `['*']`: the
 *   whole spec is replaced, but `replicas` stays when the patch has none. Otherwise each named
 *   field takes the value of the patch, or is cleared when the patch does not set the field.
 * @returns A new spec, which shares no object with the arguments.
 * @throws {@link InvalidInputError} for field `update_mask`, with every path that names no field, or
 *   when `*` is combined with other paths.
 * @example
 * ```ts
 * updateSpec(current, create(WorkloadSpecSchema, { image: 'nginx:1.29' }), ['image']);
 * ```
 */
export function updateSpec(
  current: WorkloadSpec,
  patch: WorkloadSpec,
  paths: readonly string[] | undefined,
): WorkloadSpec {
  const updated = updateMessage(WorkloadSpecSchema, current, patch, paths);
  if (paths?.includes('*') === true && current.replicas !== undefined)
    updated.replicas ??= current.replicas;
  return updated;
}

/**
 * Applies an update to a message, as {@link updateSpec} does to a spec.
 * @returns A new message, which shares no object with the arguments.
 * @throws {@link InvalidInputError} for field `update_mask`, as {@link updateSpec}.
 */
export function updateMessage<Desc extends DescMessage>(
  schema: Desc,
  current: MessageShape<Desc>,
  patch: MessageShape<Desc>,
  paths: readonly string[] | undefined,
): MessageShape<Desc> {
  if (paths === undefined || paths.length === 0) {
    const merged = clone(schema, current);
    mergePresent(reflect(schema, merged), reflect(schema, clone(schema, patch)));
    return merged;
  }
  if (paths.includes('*')) {
    if (paths.length > 1)
      throw new InvalidInputError([
        { field: 'update_mask', message: '"*" cannot be combined with other paths' },
      ]);
    return clone(schema, patch);
  }
  const problems = paths.flatMap((path) => findPathProblems(schema, path));
  if (problems.length > 0)
    throw new InvalidInputError(problems.map((message) => ({ field: 'update_mask', message })));
  const updated = reflect(schema, clone(schema, current));
  const source = reflect(schema, clone(schema, patch));
  for (const path of paths) applyPath(updated, source, path.split('.'));
  return updated.message as MessageShape<Desc>;
}

/**
 * Returns true for a field with a message of this API, which is merged field by field. A Duration
 * or Timestamp is one value.
 */
function isMergedByField(
  field: DescField,
): field is DescField & { readonly fieldKind: 'message'; readonly message: DescMessage } {
  return field.fieldKind === 'message' && field.message.typeName.startsWith('cloudless.');
}

/** Copies the fields that are set in `patch` into `target`, in place. */
function mergePresent(target: ReflectMessage, patch: ReflectMessage): void {
  for (const field of patch.fields) {
    if (!patch.isSet(field)) continue;
    if (isMergedByField(field) && target.isSet(field))
      mergePresent(target.get(field), patch.get(field));
    else target.set(field, patch.get(field));
  }
}

/** Returns why a path of an update mask names no field; empty when the path is valid. */
function findPathProblems(schema: DescMessage, path: string): readonly string[] {
  let parent: DescMessage = schema;
  const names = path.split('.');
  for (const [index, name] of names.entries()) {
    const field = parent.fields.find((known) => known.name === name);
    if (field === undefined)
      return [
        `${index === 0 && names.length === 1 ? '' : `"${path}": `}"${name}" is not a field of ${parent.name}`,
      ];
    if (index === names.length - 1) return [];
    if (!isMergedByField(field))
      return [`"${path}" is below "${name}", which can only be replaced as a whole`];
    parent = field.message;
  }
  return [];
}

/**
 * Sets the field at a path in `target` to its value in `source`, in place.
 * @param source - Undefined when the patch does not set the field, which is then cleared.
 * @param path - Names of the fields from `target` on.
 */
function applyPath(
  target: ReflectMessage,
  source: ReflectMessage | undefined,
  [head, ...rest]: readonly string[],
): void {
  const field = target.fields.find(({ name }) => name === head);
  if (field === undefined) return;
  const isGiven = source?.isSet(field) ?? false;
  if (rest.length === 0 || !isMergedByField(field)) {
    if (isGiven) target.set(field, source?.get(field));
    else target.clear(field);
    return;
  }
  if (!isGiven && !target.isSet(field)) return; // There is nothing to clear.
  const inner = target.isSet(field) ? target.get(field) : reflect(field.message);
  applyPath(inner, isGiven ? source?.get(field) : undefined, rest);
  target.set(field, inner);
}

/**
 * Returns every field that differs between two specs, in the order of the proto. Lists are compared
 * as a whole, maps by key.
 */
export function diffSpecs(before: WorkloadSpec, after: WorkloadSpec): readonly SpecDifference[] {
  return diffMessage(WorkloadSpecSchema, before, after);
}

/** Returns every field that differs between two messages, as {@link diffSpecs}. */
export function diffMessage<Desc extends DescMessage>(
  schema: Desc,
  before: MessageShape<Desc>,
  after: MessageShape<Desc>,
): readonly SpecDifference[] {
  return diffMessages(reflect(schema, before), reflect(schema, after), '');
}

function diffMessages(
  before: ReflectMessage | undefined,
  after: ReflectMessage | undefined,
  prefix: string,
): SpecDifference[] {
  const fields = (before ?? after)?.fields ?? [];
  return fields.flatMap((field): SpecDifference[] => {
    const hasBefore = before?.isSet(field) ?? false;
    const hasAfter = after?.isSet(field) ?? false;
    if (!hasBefore && !hasAfter) return [];
    const path = `${prefix}${field.name}`;
    if (isMergedByField(field)) {
      const inner = diffMessages(
        hasBefore ? before?.get(field) : undefined,
        hasAfter ? after?.get(field) : undefined,
        `${path}.`,
      );
      return inner.length > 0 || hasBefore === hasAfter
        ? inner
        : [createDifference(path, hasBefore ? {} : undefined, hasAfter ? {} : undefined)];
    }
    const left = hasBefore ? toFieldJson(before, field) : undefined;
    const right = hasAfter ? toFieldJson(after, field) : undefined;
    if (field.fieldKind === 'map') return diffMaps(path, left, right);
    return isSame(left, right) ? [] : [createDifference(path, left, right)];
  });
}

function diffMaps(
  path: string,
  before: JsonValue | undefined,
  after: JsonValue | undefined,
): SpecDifference[] {
  const left = toObject(before);
  const right = toObject(after);
  return [...new Set([...Object.keys(left), ...Object.keys(right)])]
    .sort()
    .filter((key) => !isSame(left[key], right[key]))
    .map((key) => createDifference(`${path}[${JSON.stringify(key)}]`, left[key], right[key]));
}

function toObject(value: JsonValue | undefined): { readonly [key: string]: JsonValue } {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? value : {};
}

/** Compares JSON of the same field, in which equal values have their keys in the same order. */
function isSame(left: JsonValue | undefined, right: JsonValue | undefined): boolean {
  return left === right || JSON.stringify(left) === JSON.stringify(right);
}

/** Converts one field to JSON through a message that contains nothing else. */
function toFieldJson(message: ReflectMessage | undefined, field: DescField): JsonValue | undefined {
  if (message === undefined) return undefined;
  const container = reflect(field.parent);
  container.set(field, message.get(field));
  return toObject(toJson(field.parent, container.message))[field.jsonName];
}

function createDifference(
  path: string,
  before: JsonValue | undefined,
  after: JsonValue | undefined,
): SpecDifference {
  return {
    path,
    ...definedFields({ before, after }),
  };
}
