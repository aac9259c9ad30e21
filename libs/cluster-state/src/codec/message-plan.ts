import { ScalarType, type DescField, type DescMessage } from '@bufbuild/protobuf';
import { isWrapperDesc } from '@bufbuild/protobuf/wkt';
import { createMessageConstructor, type MessageConstructor } from './message-constructor.js';

/** Form of a value on the wire. Enums are `int32`. */
export type ValueKind =
  'string' | 'bool' | 'int32' | 'uint32' | 'int64' | 'uint64' | 'double' | 'bytes' | 'message';

/**
 * Cardinality of a field, and the rule for when the field is absent.
 *
 * - `implicit`: absent when the field has the zero value.
 * - `explicit`: absent when the field is undefined.
 * - `oneof`: a member of a oneof.
 * - `list`: repeated, each element with its own tag.
 * - `packed`: repeated numbers after one tag.
 */
export type Cardinality = 'implicit' | 'explicit' | 'oneof' | 'list' | 'packed' | 'map';

/** Facts about one field that the codec reads. */
export interface FieldPlan {
  readonly name: string;
  readonly cardinality: Cardinality;
  readonly kind: ValueKind;
  /** Field number and wire type, as on the wire. */
  readonly tag: number;
  /** Property of the oneof; empty for other fields. */
  readonly oneof: string;
  /** True: text that is not UTF-8 is refused. */
  readonly validatesUtf8: boolean;
  /** True: other messages often have the same text, so that equal strings are worth sharing. */
  readonly sharesText: boolean;
  /** Kind of the keys of a map; `string` for other fields. */
  readonly mapKey: 'string' | 'int32';
  /** Plan of the messages in this field. */
  readonly message: MessagePlan | undefined;
}

/** Initial value of a property of a new message. */
export interface ZeroPlan {
  readonly name: string;
  /** `constant`: the value that all messages share; the others are created for each message. */
  readonly kind: 'constant' | 'list' | 'map' | 'oneof' | 'bytes';
  readonly constant: unknown;
}

/** Facts about one type of messages that the codec reads. */
export interface MessagePlan {
  readonly typeName: string;
  /** In the order of the field numbers. */
  readonly fields: FieldPlan[];
  /** Field by tag; absent for tags that the fast path does not read. */
  readonly byTag: (FieldPlan | undefined)[];
  readonly zeros: ZeroPlan[];
  /** Creates the object of a message. */
  readonly Message: MessageConstructor;
  /** True: equal messages are one object. They are read-only, as all that is decoded. */
  readonly isShared: boolean;
}

/** Largest tag that the fast path reads: two bytes on the wire. */
export const MAX_TAG = 0x3fff;

const EDITION_PROTO3 = 999;
/** Type of times. All changes of one transaction, and of one report, have the same time. */
const TIMESTAMP = 'google.protobuf.Timestamp';
const VARINT = 0;
const BIT64 = 1;
const LENGTH_DELIMITED = 2;

const KIND_OF_SCALAR: Partial<Record<ScalarType, ValueKind>> = {
  [ScalarType.STRING]: 'string',
  [ScalarType.BOOL]: 'bool',
  [ScalarType.INT32]: 'int32',
  [ScalarType.UINT32]: 'uint32',
  [ScalarType.INT64]: 'int64',
  [ScalarType.UINT64]: 'uint64',
  [ScalarType.DOUBLE]: 'double',
  [ScalarType.BYTES]: 'bytes',
};

/**
 * Creates the plan of a type of messages, and of all types in its fields.
 * @returns Undefined when one of these types uses a feature that the fast path does not support:
 *   another syntax than proto3, wrapper types, `google.protobuf.Struct`, fixed, zigzag or float
 *   numbers, other keys of maps than text and int32.
 */
export function createMessagePlan(schema: DescMessage): MessagePlan | undefined {
  const plans = new Map<string, MessagePlan>();
  return planMessage(schema, plans) ? plans.get(schema.typeName) : undefined;
}

/** @returns False for an unsupported type. */
function planMessage(schema: DescMessage, plans: Map<string, MessagePlan>): boolean {
  if (plans.has(schema.typeName)) return true;
  if ((schema.file.edition as number) !== EDITION_PROTO3 || isWrapperDesc(schema)) return false;
  if (schema.typeName === 'google.protobuf.Struct') return false;
  const { typeName } = schema;
  const plan: MessagePlan = {
    ...{ typeName, fields: [], byTag: [], zeros: [] },
    Message: createMessageConstructor(),
    isShared: typeName === TIMESTAMP,
  };
  plans.set(typeName, plan);
  for (const field of schema.fields) {
    if (field.message !== undefined && !planMessage(field.message, plans)) return false;
    const fieldPlan = planField(field, plans);
    if (fieldPlan === undefined) return false;
    plan.fields.push(fieldPlan);
    plan.byTag[fieldPlan.tag] = fieldPlan;
  }
  plan.fields.sort((a, b) => a.tag - b.tag);
  for (const member of schema.members) {
    const zero = member.kind === 'oneof' ? toZero(member.localName, 'oneof') : planZero(member);
    if (zero !== undefined) plan.zeros.push(zero);
  }
  return true;
}

function planField(field: DescField, plans: Map<string, MessagePlan>): FieldPlan | undefined {
  const kind = toKind(field);
  if (kind === undefined) return undefined;
  const mapKey = field.fieldKind === 'map' ? KIND_OF_SCALAR[field.mapKey] : 'string';
  if (mapKey !== 'string' && mapKey !== 'int32') return undefined;
  const cardinality = toCardinality(field);
  const isDelimited = cardinality === 'packed' || cardinality === 'map';
  const tag = (field.number << 3) | (isDelimited ? LENGTH_DELIMITED : toWireType(kind));
  if (tag > MAX_TAG) return undefined;
  return {
    name: field.localName,
    cardinality,
    kind,
    tag,
    oneof: field.oneof?.localName ?? '',
    mapKey,
    sharesText: field.localName !== 'id',
    validatesUtf8: 'utf8Validation' in field && field.utf8Validation === true,
    message: field.message === undefined ? undefined : plans.get(field.message.typeName),
  };
}

function toKind(field: DescField): ValueKind | undefined {
  if (field.message !== undefined)
    return 'delimitedEncoding' in field && field.delimitedEncoding ? undefined : 'message';
  if ('longAsString' in field && field.longAsString) return undefined;
  return field.enum === undefined
    ? field.scalar === undefined
      ? undefined
      : KIND_OF_SCALAR[field.scalar]
    : field.enum.open
      ? 'int32'
      : undefined;
}

function toCardinality(field: DescField): Cardinality {
  if (field.fieldKind === 'map') return 'map';
  if (field.fieldKind === 'list') return field.packed ? 'packed' : 'list';
  if (field.oneof !== undefined) return 'oneof';
  return field.fieldKind === 'message' || field.proto.proto3Optional ? 'explicit' : 'implicit';
}

/** Returns the wire type of a single value. */
export function toWireType(kind: ValueKind): number {
  if (kind === 'double') return BIT64;
  return kind === 'string' || kind === 'bytes' || kind === 'message' ? LENGTH_DELIMITED : VARINT;
}

/** @returns Undefined for a field that a new message does not have. */
function planZero(field: DescField): ZeroPlan | undefined {
  const name = field.localName;
  if (field.fieldKind === 'list') return toZero(name, 'list');
  if (field.fieldKind === 'map') return toZero(name, 'map');
  if (toCardinality(field) !== 'implicit') return undefined;
  switch (toKind(field)) {
    case 'bytes':
      return toZero(name, 'bytes');
    case 'string':
      return toZero(name, 'constant', '');
    case 'bool':
      return toZero(name, 'constant', false);
    case 'int64':
    case 'uint64':
      return toZero(name, 'constant', 0n);
    default:
      return toZero(name, 'constant', 0);
  }
}

function toZero(name: string, kind: ZeroPlan['kind'], constant?: unknown): ZeroPlan {
  return { name, kind, constant };
}
