import type { DescField, DescMessage, Message } from '@bufbuild/protobuf';
import { reflect, type ReflectMessage } from '@bufbuild/protobuf/reflect';
import {
  DurationSchema,
  TimestampSchema,
  type Duration,
  type Timestamp,
} from '@bufbuild/protobuf/wkt';
import type { Violation } from '@cloudless/base';

/**
 * Finds durations and timestamps that JSON cannot express. The binary format can express them, and
 * a stored record with such a time could never be converted to JSON.
 * @param prefix - Path of the message, with a dot at its end, for the violations.
 * @see google/protobuf/duration.proto and timestamp.proto, for the ranges
 */
export function* findMalformedTimes(
  schema: DescMessage,
  message: Message,
  prefix = '',
): Generator<Violation> {
  if (hasOnlyValidTimes(schema, message)) return;
  yield* findMalformedIn(reflect(schema, message, false), prefix);
}

/**
 * Returns true when the message contains no malformed time: most messages, whose fields are read
 * here without reflection.
 */
function hasOnlyValidTimes(schema: DescMessage, message: Message): boolean {
  if (isTime(schema)) return isWellFormed(schema, message);
  const values = message as unknown as Readonly<Record<string, unknown>>;
  for (const field of listTimeFields(schema)) {
    const value = readValue(field, values);
    if (value === undefined) continue;
    if (field.fieldKind === 'message') {
      if (!hasOnlyValidTimes(field.message, value as Message)) return false;
      continue;
    }
    const items = field.fieldKind === 'list' ? value : Object.values(value as object);
    for (const item of items as readonly Message[])
      if (!hasOnlyValidTimes(field.message, item)) return false;
  }
  return true;
}

/** A field that holds messages. */
type MessageField = DescField & { readonly message: DescMessage };

/** Returns the value of a field, or of a member of a oneof; undefined when it is not set. */
function readValue(
  { localName, oneof }: MessageField,
  values: Readonly<Record<string, unknown>>,
): unknown {
  if (oneof === undefined) return values[localName];
  const chosen = values[oneof.localName] as
    { readonly case?: string; readonly value?: unknown } | undefined;
  return chosen?.case === localName ? chosen.value : undefined;
}

/** Results of {@link listTimeFields}. */
const timeFieldsBySchema = new Map<DescMessage, readonly MessageField[]>();

/** Returns the fields that can contain a duration or timestamp at any depth. */
function listTimeFields(schema: DescMessage): readonly MessageField[] {
  const known = timeFieldsBySchema.get(schema);
  if (known !== undefined) return known;
  const fields = schema.fields.filter((field): field is MessageField => {
    const inner = getMessageType(field);
    return inner !== undefined && containsTime(inner);
  });
  timeFieldsBySchema.set(schema, fields);
  return fields;
}

function* findMalformedIn(message: ReflectMessage, prefix: string): Generator<Violation> {
  for (const field of message.fields) {
    const inner = getMessageType(field);
    if (inner === undefined || !containsTime(inner) || !message.isSet(field)) continue;
    const path = `${prefix}${field.name}`;
    if (field.fieldKind === 'message') yield* checkItem(inner, message.get(field), path);
    else if (field.fieldKind === 'list') {
      for (const [index, item] of [...message.get(field)].entries())
        yield* checkItem(inner, item as ReflectMessage, `${path}[${index}]`);
    } else if (field.fieldKind === 'map') {
      for (const [key, item] of message.get(field))
        yield* checkItem(inner, item as ReflectMessage, `${path}[${JSON.stringify(key)}]`);
    }
  }
}

function* checkItem(
  schema: DescMessage,
  { message }: ReflectMessage,
  path: string,
): Generator<Violation> {
  if (schema.typeName === DurationSchema.typeName) {
    if (!isDuration(message as Duration))
      yield {
        field: path,
        message: 'must be a duration within 10000 years, with seconds and nanos of one sign',
      };
  } else if (schema.typeName === TimestampSchema.typeName) {
    if (!isTimestamp(message as Timestamp))
      yield { field: path, message: 'must be a time of the years 1 to 9999' };
  } else yield* findMalformedIn(reflect(schema, message, false), `${path}.`);
}

function isWellFormed({ typeName }: DescMessage, time: Message): boolean {
  return typeName === DurationSchema.typeName
    ? isDuration(time as Duration)
    : isTimestamp(time as Timestamp);
}

function isDuration({ seconds, nanos }: Duration): boolean {
  const inRange =
    seconds >= -MAX_DURATION_SECONDS &&
    seconds <= MAX_DURATION_SECONDS &&
    Math.abs(nanos) <= MAX_NANOS;
  return inRange && !(seconds > 0n && nanos < 0) && !(seconds < 0n && nanos > 0);
}

function isTimestamp({ seconds, nanos }: Timestamp): boolean {
  return seconds >= FIRST_SECOND && seconds <= LAST_SECOND && nanos >= 0 && nanos <= MAX_NANOS;
}

/** About 10,000 years. */
const MAX_DURATION_SECONDS = 315_576_000_000n;
const MAX_NANOS = 999_999_999;
/** 0001-01-01T00:00:00Z. */
const FIRST_SECOND = -62_135_596_800n;
/** 9999-12-31T23:59:59Z. */
const LAST_SECOND = 253_402_300_799n;

function getMessageType(field: DescField): DescMessage | undefined {
  return field.fieldKind === 'enum' || field.fieldKind === 'scalar' ? undefined : field.message;
}

/** Results of {@link containsTime}. */
const containsTimeBySchema = new Map<DescMessage, boolean>();

/** Returns true when a message of this schema can contain a duration or timestamp at any depth. */
function containsTime(schema: DescMessage): boolean {
  const result = containsTimeBySchema.get(schema) ?? listReachableMessages(schema).some(isTime);
  containsTimeBySchema.set(schema, result);
  return result;
}

function isTime({ typeName }: DescMessage): boolean {
  return typeName === DurationSchema.typeName || typeName === TimestampSchema.typeName;
}

/**
 * Returns the schemas of all messages that a message of this schema can contain, and the schema
 * itself. The loop visits schemas that it adds to the set, each once, so it ends for recursive
 * messages too.
 */
function listReachableMessages(schema: DescMessage): DescMessage[] {
  const reached = new Set([schema]);
  for (const { fields } of reached)
    for (const inner of fields.map(getMessageType)) if (inner !== undefined) reached.add(inner);
  return [...reached];
}
