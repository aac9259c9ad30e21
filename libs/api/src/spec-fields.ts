import { InvalidInputError } from '@cloudless/base';
import { clone, type DescField, type DescMessage, type Message } from '@bufbuild/protobuf';
import { reflect, type ReflectMessage } from '@bufbuild/protobuf/reflect';
import { toJson, type JsonValue } from '@bufbuild/protobuf';
import { WorkloadSpecSchema, type WorkloadSpec } from './gen.js';

/** One leaf that differs between two specs. */
export interface SpecChange {
  /** Path below `spec`, in proto spelling: `rollout.max_surge`. */
  readonly path: string;
  /** JSON; absent when the field is not set there. */
  readonly before?: JsonValue;
  readonly after?: JsonValue;
}

/**
 * Applies an update to a spec.
 * @param patch - The spec of the request.
 * @param paths - The update mask; absent changes exactly the fields present in `patch`: messages are entered, lists, maps
 *   and scalars replaced. `*` replaces the whole spec, but keeps `replicas` where the patch has none. A named path takes
 *   the patch's value, or is cleared where the patch has none.
 * @throws {@link InvalidInputError} for a path that names no field.
 */
export function updateSpec(current: WorkloadSpec, patch: WorkloadSpec, paths: readonly string[] | undefined): WorkloadSpec {
  if (paths === undefined || paths.length === 0) {
    const merged = clone(WorkloadSpecSchema, current);
    mergePresent(reflect(WorkloadSpecSchema, merged), reflect(WorkloadSpecSchema, clone(WorkloadSpecSchema, patch)));
    return merged;
  }
  if (paths.includes('*')) {
    if (paths.length > 1) throw new InvalidInputError([{ field: 'update_mask', message: '"*" stands alone' }]);
    const replaced = clone(WorkloadSpecSchema, patch);
    if (replaced.replicas === undefined && current.replicas !== undefined) replaced.replicas = current.replicas;
    return replaced;
  }
  const updated = clone(WorkloadSpecSchema, current);
  const source = clone(WorkloadSpecSchema, patch);
  for (const path of paths) applyPath(reflect(WorkloadSpecSchema, updated), reflect(WorkloadSpecSchema, source), path);
  return updated;
}

/** Only our own messages are entered; a Duration or Timestamp is one value. */
function isEntered(field: DescField): field is DescField & { readonly fieldKind: 'message'; readonly message: DescMessage } {
  return field.fieldKind === 'message' && field.message.typeName.startsWith('cloudless.');
}

function mergePresent(target: ReflectMessage, patch: ReflectMessage): void {
  for (const field of patch.fields) {
    if (!patch.isSet(field)) continue;
    if (isEntered(field) && target.isSet(field)) mergePresent(target.get(field), patch.get(field));
    else target.set(field, patch.get(field));
  }
}

function applyPath(target: ReflectMessage, source: ReflectMessage, path: string): void {
  const [head, ...rest] = path.split('.');
  const field = target.fields.find(({ name }) => name === head);
  if (field === undefined) {
    throw new InvalidInputError([{ field: 'update_mask', message: `"${head ?? ''}" is no field of ${target.desc.name}` }]);
  }
  if (rest.length === 0) {
    if (source.isSet(field)) target.set(field, source.get(field));
    else target.clear(field);
    return;
  }
  if (!isEntered(field)) {
    throw new InvalidInputError([
      { field: 'update_mask', message: `"${path}" goes below "${head ?? ''}", which is replaced as a whole` },
    ]);
  }
  const inner = reflect(field.message, target.isSet(field) ? target.get(field).message : undefined);
  const innerSource = reflect(field.message, source.isSet(field) ? source.get(field).message : undefined);
  applyPath(inner, innerSource, rest.join('.'));
  target.set(field, inner);
}

/** Every leaf that differs, in the order of the proto. Lists are compared as a whole, maps by key. */
export function diffSpecs(before: WorkloadSpec, after: WorkloadSpec): readonly SpecChange[] {
  return diffMessages(reflect(WorkloadSpecSchema, before), reflect(WorkloadSpecSchema, after), '');
}

function diffMessages(before: ReflectMessage | undefined, after: ReflectMessage | undefined, prefix: string): SpecChange[] {
  const fields = (before ?? after)?.fields ?? [];
  return fields.flatMap((field): SpecChange[] => {
    const hasBefore = before?.isSet(field) ?? false;
    const hasAfter = after?.isSet(field) ?? false;
    if (!hasBefore && !hasAfter) return [];
    const path = `${prefix}${field.name}`;
    if (isEntered(field)) {
      const inner = diffMessages(
        hasBefore ? before?.get(field) : undefined,
        hasAfter ? after?.get(field) : undefined,
        `${path}.`,
      );
      return inner.length > 0 || hasBefore === hasAfter
        ? inner
        : [change(path, hasBefore ? {} : undefined, hasAfter ? {} : undefined)];
    }
    const left = hasBefore ? jsonOf(before?.message, field) : undefined;
    const right = hasAfter ? jsonOf(after?.message, field) : undefined;
    if (field.fieldKind === 'map') return diffMaps(path, left, right);
    return JSON.stringify(left) === JSON.stringify(right) ? [] : [change(path, left, right)];
  });
}

function diffMaps(path: string, before: JsonValue | undefined, after: JsonValue | undefined): SpecChange[] {
  const left = asObject(before);
  const right = asObject(after);
  return [...new Set([...Object.keys(left), ...Object.keys(right)])]
    .sort()
    .filter((key) => left[key] !== right[key])
    .map((key) => change(`${path}["${key}"]`, left[key], right[key]));
}

function asObject(value: JsonValue | undefined): { readonly [key: string]: JsonValue } {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? value : {};
}

/** The JSON of one field: that of the message, taken apart. */
function jsonOf(message: Message | undefined, field: DescField): JsonValue | undefined {
  if (message === undefined) return undefined;
  return asObject(toJson(field.parent, message))[field.jsonName];
}

function change(path: string, before: JsonValue | undefined, after: JsonValue | undefined): SpecChange {
  return { path, ...(before === undefined ? {} : { before }), ...(after === undefined ? {} : { after }) };
}
