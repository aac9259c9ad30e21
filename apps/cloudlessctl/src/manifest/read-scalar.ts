import { ScalarType, fromJson } from '@bufbuild/protobuf';
import type { DescField, DescMessage, JsonValue } from '@bufbuild/protobuf';
import { TimestampSchema } from '@bufbuild/protobuf/wkt';
import { isScalar, isSeq } from 'yaml';
import type { Node } from 'yaml';
import { MAX_REPLICAS, parseCpu, parseDuration, parseQuantity } from '../quantity.js';
import type { Parsed } from '../quantity.js';
import { describeNode } from './yaml-reader.js';

/**
 * Reads a scalar value as protobuf JSON. The end of the field name selects the unit of a number:
 * `_bytes`, `_bps`, `cpu_millis`.
 * @param type - Type of the value; for a list or map, the type of its elements.
 */
export function readScalar(
  field: DescField,
  type: ScalarType,
  node: Node | null,
): Parsed<JsonValue> {
  const value = isScalar(node) ? node.value : undefined;
  switch (type) {
    case ScalarType.STRING:
      return typeof value === 'string'
        ? { value }
        : { problem: describeExpected('a string', node, suggestQuotes(node)) };
    case ScalarType.BOOL:
      return typeof value === 'boolean'
        ? { value }
        : { problem: describeExpected('true or false', node) };
    case ScalarType.FLOAT:
    case ScalarType.DOUBLE:
      return typeof value === 'number' || typeof value === 'bigint'
        ? { value: Number(value) }
        : { problem: describeExpected('a number', node) };
    case ScalarType.BYTES:
      return typeof value === 'string' && /^[A-Za-z0-9+/_-]*={0,2}$/.test(value)
        ? { value }
        : { problem: describeExpected('base64 text', node) };
    default:
      return readInteger(field, type, node);
  }
}

/**
 * Reads a message that is written as a scalar: a duration or a timestamp.
 * @returns The value in protobuf JSON, or the problem; undefined for every other message type.
 */
export function readWellKnown(
  schema: DescMessage,
  node: Node | null,
): Parsed<JsonValue> | undefined {
  const text = isScalar(node) && typeof node.value === 'string' ? node.value : undefined;
  switch (schema.typeName) {
    case 'google.protobuf.Duration': {
      if (text === undefined)
        return {
          problem: describeExpected(
            'a duration such as "500ms", "2s" or "1h30m"',
            node,
            suggestSeconds(node),
          ),
        };
      const parsed = parseDuration(text);
      return 'problem' in parsed ? parsed : { value: toDurationJson(parsed.value) };
    }
    case 'google.protobuf.Timestamp':
      return text !== undefined && isTimestamp(text)
        ? { value: text }
        : { problem: describeExpected('a time such as "2026-01-31T12:00:00Z"', node) };
    case 'google.protobuf.Value':
      return readValue(node);
    default:
      return undefined;
  }
}

/** Reads a text, a number, true, false, or a list of them. */
function readValue(node: Node | null): Parsed<JsonValue> {
  if (!isSeq(node)) return readSingleValue(node);
  const values: JsonValue[] = [];
  for (const item of node.items) {
    const parsed = readSingleValue(item as Node | null);
    if ('problem' in parsed) return parsed;
    values.push(parsed.value);
  }
  return { value: values };
}

function readSingleValue(node: Node | null): Parsed<JsonValue> {
  const value: unknown = isScalar(node) ? node.value : undefined;
  if (typeof value === 'string' || typeof value === 'boolean') return { value };
  const number = Number(value ?? undefined);
  // A number in JSON has 53 bits; a larger whole number would lose digits.
  if (typeof value === 'bigint' && !Number.isSafeInteger(number))
    return { problem: describeExpected('a whole number of at most 2^53 - 1', node) };
  if (typeof value === 'bigint' || (typeof value === 'number' && Number.isFinite(value)))
    return { value: number };
  return { problem: describeExpected('a string, a number, true, false, or a list of them', node) };
}

/** Formats nanoseconds as a duration in protobuf JSON, for example `1.5s`. */
export function toDurationJson(nanos: bigint): string {
  const size = nanos < 0n ? -nanos : nanos;
  const fraction = (size % 1_000_000_000n).toString().padStart(9, '0').replace(/0+$/, '');
  return `${nanos < 0n ? '-' : ''}${size / 1_000_000_000n}${fraction === '' ? '' : `.${fraction}`}s`;
}

function readInteger(field: DescField, type: ScalarType, node: Node | null): Parsed<JsonValue> {
  const parsed = parseInteger(field, type, node);
  if ('problem' in parsed) return parsed;
  const [smallest, greatest] = getRange(type);
  if (parsed.value < smallest || parsed.value > greatest) {
    // The coordinator checks the range of the field, but cannot receive a number beyond its type.
    const range = field.name === 'replicas' ? `0 to ${MAX_REPLICAS}` : `${smallest} to ${greatest}`;
    return { problem: describeExpected(`a whole number from ${range}`, node) };
  }
  return { value: isLong(type) ? parsed.value.toString() : Number(parsed.value) };
}

function parseInteger(field: DescField, type: ScalarType, node: Node | null): Parsed<bigint> {
  const value = isScalar(node) ? node.value : undefined;
  if (isFileMode(field)) return parseFileMode(node);
  if (typeof value === 'bigint') return { value };
  if (field.name.endsWith('cpu_millis')) {
    // "2" could mean cores or thousandths of a core, a factor of 1000.
    if (typeof value === 'string' && /^\d+$/.test(value)) {
      return {
        problem: `write "${value}m" for thousandths of a core or "${value}.0" for cores: without a unit the value is ambiguous`,
      };
    }
    if (typeof value === 'string') return parseCpu(value);
    if (typeof value === 'number')
      return parseCpu(isScalar(node) ? (node.source ?? String(value)) : String(value));
    return { problem: describeExpected('a CPU quantity such as 500, "500m" or "0.5"', node) };
  }
  if (typeof value === 'string' && /_bytes$|_bps$/.test(field.name)) return parseQuantity(value);
  if (typeof value === 'string' && isLong(type) && /^-?\d{1,20}$/.test(value))
    return { value: BigInt(value) };
  if (/_bytes$/.test(field.name))
    return { problem: describeExpected('a quantity such as 67108864, "64Mi" or "500M"', node) };
  const hint = typeof value === 'string' && /^-?\d+$/.test(value) ? '; remove the quotes' : '';
  return { problem: describeExpected('a whole number', node, hint) };
}

/** Returns true for the permissions of the files of a secret or config. */
export function isFileMode(field: DescField): boolean {
  return (
    field.name === 'mode' &&
    ['cloudless.api.SecretRef', 'cloudless.api.ConfigRef'].includes(field.parent.typeName)
  );
}

/** The permissions that the files of a secret or config may have. */
export const FILE_MODES: ReadonlySet<bigint> = new Set([0o400n, 0o440n, 0o444n]);

/** Parses permissions: `0400` and `"0400"` are octal, `256` is decimal as in the JSON of the API. */
function parseFileMode(node: Node | null): Parsed<bigint> {
  const value = isScalar(node) ? node.value : undefined;
  const text = typeof value === 'string' ? value : isScalar(node) ? (node.source ?? '') : '';
  if (/^0o?[0-7]{3}$/.test(text)) return { value: BigInt(Number.parseInt(text.slice(-3), 8)) };
  const isDecimal = /^4[04][04]$/.test(text);
  if (typeof value === 'bigint' && !isDecimal) return { value };
  const hint = isDecimal ? `; write 0${text}` : '';
  return { problem: describeExpected('the permissions 0400, 0440 or 0444', node, hint) };
}

/** Returns true for a 64-bit integer, which protobuf JSON writes as a string. */
function isLong(type: ScalarType): boolean {
  return [
    ScalarType.INT64,
    ScalarType.UINT64,
    ScalarType.SINT64,
    ScalarType.FIXED64,
    ScalarType.SFIXED64,
  ].includes(type);
}

/** Returns the smallest and the greatest value of an integer type. */
function getRange(type: ScalarType): readonly [bigint, bigint] {
  const bits = isLong(type) ? 64n : 32n;
  const unsigned = [
    ScalarType.UINT32,
    ScalarType.UINT64,
    ScalarType.FIXED32,
    ScalarType.FIXED64,
  ].includes(type);
  return unsigned ? [0n, 2n ** bits - 1n] : [-(2n ** (bits - 1n)), 2n ** (bits - 1n) - 1n];
}

function isTimestamp(text: string): boolean {
  try {
    fromJson(TimestampSchema, text);
    return true;
  } catch {
    return false;
  }
}

function describeExpected(expected: string, node: Node | null, hint = ''): string {
  return `expected ${expected}, got ${describeNode(node)}${hint}`;
}

function suggestQuotes(node: Node | null): string {
  return isScalar(node) && node.value !== null && node.source !== undefined
    ? `; write "${node.source}"`
    : '';
}

function suggestSeconds(node: Node | null): string {
  return isScalar(node) && typeof node.value === 'bigint'
    ? `; write "${node.value}s" for seconds`
    : '';
}
