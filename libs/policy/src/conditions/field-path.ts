import {
  isFieldSet,
  ScalarType,
  type DescField,
  type DescMessage,
  type Message,
} from '@bufbuild/protobuf';
import { WorkloadSpecSchema } from '@cloudless/api';
import type { ConditionValue, PolicySubject } from '../model.js';

/** Type of a field of a workload: one value, or a list of values. */
export interface FieldKind {
  readonly kind: 'text' | 'number' | 'boolean' | 'enum';
  readonly isList: boolean;
  /** Names of the values of an enum field. */
  readonly names?: readonly string[];
}

/** A field of a workload that conditions can compare. */
export interface FieldPath extends FieldKind {
  /** Returns the value, the items of a list, or undefined when the field is absent. */
  readonly read: (subject: PolicySubject) => ConditionValue | readonly ConditionValue[] | undefined;
  /** Returns true when the field is set: present, or for fields without presence not the default. */
  readonly isSet: (subject: PolicySubject) => boolean;
}

/** A problem with a path, for people. */
export interface PathProblem {
  readonly problem: string;
}

/** Form of a path below `spec`: names separated by dots, and a map key at the end. */
const PATH = /^spec((?:\.[a-z_0-9]+)+)(?:\[("(?:[^"\\]|\\["\\])*")\])?$/;

/**
 * Resolves a path such as `namespace`, `spec.image` or `spec.labels["app"]`.
 * @returns A problem that names what is allowed when the path leads to no comparable field.
 */
export function resolveFieldPath(path: string): FieldPath | PathProblem {
  if (path === 'namespace' || path === 'name') {
    const read = (subject: PolicySubject) => subject[path];
    return { kind: 'text', isList: false, read, isSet: (subject) => read(subject) !== '' };
  }
  const match = PATH.exec(path);
  if (match === null) {
    const problem = `${JSON.stringify(path)} is not a field; use namespace, name, or a path such as spec.image or spec.labels["app"]`;
    return { problem };
  }
  const [, names = '', quotedKey] = match;
  const fields = resolveNames(names.slice(1).split('.'));
  if ('problem' in fields) return fields;
  const key = quotedKey === undefined ? undefined : (JSON.parse(quotedKey) as string);
  return toFieldPath(fields.parents, fields.last, key);
}

interface ResolvedFields {
  readonly parents: readonly DescField[];
  readonly last: DescField;
}

function resolveNames(names: readonly string[]): ResolvedFields | PathProblem {
  let message: DescMessage = WorkloadSpecSchema;
  const parents: DescField[] = [];
  for (const [index, name] of names.entries()) {
    const field = message.fields.find((candidate) => candidate.name === name);
    const at = ['spec', ...names.slice(0, index)].join('.');
    if (field === undefined) {
      const known = message.fields.map((candidate) => candidate.name).join(', ');
      return { problem: `${at} has no field ${name}; it has ${known}` };
    }
    if (index === names.length - 1) return { parents, last: field };
    if (field.fieldKind !== 'message')
      return { problem: `${at}.${name} has no fields; use a rule of type EXPRESSION` };
    parents.push(field);
    message = field.message;
  }
  return { problem: 'spec is not a comparable field' };
}

function toFieldPath(
  parents: readonly DescField[],
  last: DescField,
  key: string | undefined,
): FieldPath | PathProblem {
  const kind = findKind(last, key);
  if (kind === undefined) {
    const hint =
      last.fieldKind === 'map' && key === undefined
        ? `name an entry: ${last.name}["key"]`
        : last.fieldKind !== 'map' && key !== undefined
          ? `${last.name} is not a map`
          : 'use a rule of type EXPRESSION for this field';
    return { problem: `${last.name} cannot be compared; ${hint}` };
  }
  const findParent = (subject: PolicySubject) => findMessage(subject.spec, parents);
  if (key !== undefined) {
    const read = (subject: PolicySubject) => readEntry(findParent(subject), last, key);
    return { ...kind, read, isSet: (subject) => read(subject) !== undefined };
  }
  return {
    ...kind,
    read: (subject) => readField(findParent(subject), last),
    isSet: (subject) => {
      const parent = findParent(subject);
      return parent !== undefined && isFieldSet(parent, last);
    },
  };
}

/** Returns undefined for a field that conditions cannot compare. */
function findKind(field: DescField, key: string | undefined): FieldKind | undefined {
  if (field.fieldKind === 'map') {
    if (key === undefined || field.mapKind !== 'scalar') return undefined;
    return { kind: toScalarKind(field.scalar), isList: false };
  }
  if (key !== undefined) return undefined;
  const isList = field.fieldKind === 'list';
  if (field.enum !== undefined)
    return { kind: 'enum', isList, names: field.enum.values.map(({ name }) => name) };
  return field.scalar === undefined ? undefined : { kind: toScalarKind(field.scalar), isList };
}

function toScalarKind(scalar: ScalarType): 'text' | 'number' | 'boolean' {
  if (scalar === ScalarType.STRING) return 'text';
  return scalar === ScalarType.BOOL ? 'boolean' : 'number';
}

/**
 * Returns the message that holds the last field, or undefined when a message on the way is absent.
 */
function findMessage(spec: Message, parents: readonly DescField[]): Message | undefined {
  let message: Message | undefined = spec;
  for (const field of parents) {
    if (message === undefined) return undefined;
    message = readRawValue(message, field) as Message | undefined;
  }
  return message;
}

/** Returns the value of a field of a generated message; undefined for another case of its oneof. */
function readRawValue(message: Message, field: DescField): unknown {
  const values = message as unknown as Readonly<Record<string, unknown>>;
  if (field.oneof === undefined) return values[field.localName];
  const chosen = values[field.oneof.localName] as {
    readonly case?: string;
    readonly value?: unknown;
  };
  return chosen.case === field.localName ? chosen.value : undefined;
}

function readEntry(
  parent: Message | undefined,
  field: DescField,
  key: string,
): ConditionValue | undefined {
  if (parent === undefined) return undefined;
  const entries = readRawValue(parent, field) as Readonly<Record<string, unknown>>;
  return Object.hasOwn(entries, key) ? toValue(field, entries[key]) : undefined;
}

function readField(
  parent: Message | undefined,
  field: DescField,
): ConditionValue | readonly ConditionValue[] | undefined {
  const value = parent === undefined ? undefined : readRawValue(parent, field);
  if (field.fieldKind === 'list')
    return ((value ?? []) as readonly unknown[]).map((item) => toValue(field, item));
  if (value !== undefined) return toValue(field, value);
  return hasPresence(field) ? undefined : toValue(field, getDefault(field));
}

/** Returns true for fields that tell an absent value from the default. */
function hasPresence(field: DescField): boolean {
  return field.oneof !== undefined || field.proto.proto3Optional;
}

function getDefault(field: DescField): unknown {
  if (field.enum !== undefined) return field.enum.values[0]?.number;
  if (field.scalar === ScalarType.STRING) return '';
  return field.scalar === ScalarType.BOOL ? false : 0;
}

function toValue(field: DescField, value: unknown): ConditionValue {
  if (field.enum !== undefined && typeof value === 'number')
    return field.enum.value[value]?.name ?? String(value);
  return typeof value === 'bigint' ? Number(value) : (value as ConditionValue);
}
