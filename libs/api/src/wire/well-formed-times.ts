import type { DescMessage, Message } from '@bufbuild/protobuf';
import { reflect, type ReflectMessage } from '@bufbuild/protobuf/reflect';
import {
  DurationSchema,
  TimestampSchema,
  type Duration,
  type Timestamp,
} from '@bufbuild/protobuf/wkt';
import type { Violation } from '@cloudless/base';
import { listFieldsThatReach, someMessage, type MessageField } from './message-fields.js';

/**
 * Finds durations and timestamps that JSON cannot express. The binary format can express them, and
 * a stored record with such a time could never be converted to JSON.
 * @param prefix - Path of the message, with a dot at its end, for the violations.
 * @see google/protobuf/duration.proto and timestamp.proto, for the ranges
 */
export function findMalformedTimes(
  schema: DescMessage,
  message: Message,
  prefix = '',
): readonly Violation[] {
  return hasMalformedTime(schema, message)
    ? [...findMalformedIn(reflect(schema, message, false), prefix)]
    : NONE;
}

const NONE: readonly Violation[] = [];

/**
 * Returns true when the message contains a malformed time: few messages do, and the fields of the
 * others are read here without reflection.
 */
function hasMalformedTime(schema: DescMessage, message: Message): boolean {
  return isTime(schema)
    ? !isWellFormed(schema, message)
    : someMessage(message, getTimeFields(schema), hasMalformedTime);
}

/** Results of {@link getTimeFields}. */
const timeFieldsBySchema = new Map<DescMessage, readonly MessageField[]>();

/** Returns the fields that can contain a duration or timestamp at any depth. */
function getTimeFields(schema: DescMessage): readonly MessageField[] {
  let fields = timeFieldsBySchema.get(schema);
  if (fields === undefined) {
    fields = listFieldsThatReach(schema, isTime);
    timeFieldsBySchema.set(schema, fields);
  }
  return fields;
}

function* findMalformedIn(message: ReflectMessage, prefix: string): Generator<Violation> {
  for (const field of getTimeFields(message.desc)) {
    if (!message.isSet(field)) continue;
    const { message: inner } = field;
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

function isTime({ typeName }: DescMessage): boolean {
  return typeName === DurationSchema.typeName || typeName === TimestampSchema.typeName;
}
