import {
  ScalarType,
  fromJson,
  type DescField,
  type DescMessage,
  type JsonValue,
} from '@bufbuild/protobuf';
import { DurationSchema } from '@bufbuild/protobuf/wkt';
import type { FieldChange } from '@cloudless/api';
import { printYaml } from '../manifest/print-yaml.js';
import { formatDuration } from '../output/human.js';
import type { Style } from '../output/style.js';
import { toOneLine } from '../output/table.js';

/** Longest value on one line. A longer value, or one with line ends, is shown as YAML lines. */
const MAX_LINE_LENGTH = 120;
/** Lines without a change that are shown before and after the changed ones. */
const CONTEXT_LINES = 2;
/** Most lines of one changed value. `-o json` prints the whole value. */
const MAX_BLOCK_LINES = 60;

/**
 * Formats a changed field as in manifests: camelCase names, quantities with their units:
 * `resources.requests.memoryBytes: 32Mi -> 64Mi`. Long values and texts of several lines, such as
 * scripts, are shown as YAML with the old lines marked by `-` and the new ones by `+`.
 * @param schema - The message that the path begins at. Undefined: the values are shown as they are.
 */
export function formatFieldChange(
  schema: DescMessage | undefined,
  { path, before, after }: FieldChange,
  style: Style,
): readonly string[] {
  const { name, field, isMapEntry } = resolvePath(schema, path);
  const [was, is] = [before, after].map((json) => toShown(field, isMapEntry, json));
  const texts = [was, is].map((value) => formatInline(value));
  const [left = '', right = ''] = texts.map((text) => (text === undefined ? '(absent)' : text));
  if (
    [was, is].every((value) => !hasLineEnd(value)) &&
    left.length + right.length <= MAX_LINE_LENGTH
  ) {
    const line = `  ${name}: ${toOneLine(left)} -> ${toOneLine(right)}`;
    return [
      before === '' ? style.green(line) : after === '' ? style.red(line) : style.yellow(line),
    ];
  }
  return [`  ${name}:`, ...formatLineChanges(toYamlLines(was), toYamlLines(is), style)];
}

/** A value as it is shown: a text that needs no quotes, or JSON; undefined when it is absent. */
type Shown = { readonly bare: string } | { readonly json: JsonValue } | undefined;

interface ResolvedPath {
  /** The path with camelCase names. */
  readonly name: string;
  readonly field: DescField | undefined;
  /** True when the path ends at one entry of a map. */
  readonly isMapEntry: boolean;
}

/** Resolves a path such as `rollout.max_surge` or `env["NAME"]`. */
function resolvePath(schema: DescMessage | undefined, path: string): ResolvedPath {
  const bracket = path.indexOf('[');
  const [fields, key] = bracket === -1 ? [path, ''] : [path.slice(0, bracket), path.slice(bracket)];
  const names: string[] = [];
  let parent = schema;
  let field: DescField | undefined;
  for (const part of fields.split('.')) {
    field = parent?.fields.find(({ name }) => name === part);
    names.push(field?.jsonName ?? part);
    parent = field?.message;
  }
  return { name: names.join('.') + key, field, isMapEntry: key !== '' };
}

/** @param json - JSON of the value; empty when the value is absent. */
function toShown(field: DescField | undefined, isMapEntry: boolean, json: string): Shown {
  if (json === '') return undefined;
  const value = JSON.parse(json) as JsonValue;
  if (field === undefined) return { json: value };
  const readable = isMapEntry ? toReadableItem(field, value) : toReadable(field, value);
  const hasQuotes = field.fieldKind === 'map' || field.scalar === ScalarType.STRING;
  return typeof readable === 'string' && !hasQuotes ? { bare: readable } : { json: readable };
}

/** Replaces numbers with units and durations in the JSON of a field by the texts of manifests. */
function toReadable(field: DescField, value: JsonValue): JsonValue {
  if (field.fieldKind === 'list' && Array.isArray(value))
    return value.map((item) => toReadableItem(field, item));
  if (field.fieldKind === 'map')
    return mapObject(value, (_key, item) => toReadableItem(field, item));
  return toReadableItem(field, value);
}

/** Converts a value of a field, or one item of a list or map. */
function toReadableItem({ name, message }: DescField, value: JsonValue): JsonValue {
  if (message?.typeName === DurationSchema.typeName)
    return formatDuration(fromJson(DurationSchema, value));
  if (message !== undefined) {
    return mapObject(value, (key, inner) => {
      const field = message.fields.find(({ jsonName }) => jsonName === key);
      return field === undefined ? inner : toReadable(field, inner);
    });
  }
  if (name.endsWith('cpu_millis')) return `${String(value)}m`;
  return /_bytes$|_bps$/.test(name) ? formatQuantity(value) : value;
}

function mapObject(
  value: JsonValue,
  convert: (key: string, value: JsonValue) => JsonValue,
): JsonValue {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, inner]) => [key, convert(key, inner)]),
  );
}

/** Formats a number exactly, with the largest binary unit that divides it: `32Mi`, `500`. */
function formatQuantity(value: JsonValue): string {
  let number = BigInt(String(value));
  let unit = 0;
  while (number !== 0n && number % 1024n === 0n && unit < BINARY_UNITS.length - 1) {
    number /= 1024n;
    unit += 1;
  }
  return `${number}${BINARY_UNITS[unit] ?? ''}`;
}

const BINARY_UNITS = ['', 'Ki', 'Mi', 'Gi', 'Ti', 'Pi'];

function formatInline(value: Shown): string | undefined {
  if (value === undefined) return undefined;
  return 'bare' in value ? value.bare : JSON.stringify(value.json);
}

/** Returns true when a value contains a text with several lines. */
function hasLineEnd(value: Shown): boolean {
  return value !== undefined && 'json' in value && /[^\\]\\n./.test(JSON.stringify(value.json));
}

function toYamlLines(value: Shown): readonly string[] {
  if (value === undefined) return [];
  return printYaml('bare' in value ? value.bare : value.json)
    .trimEnd()
    .split('\n')
    .map((line) => line.replaceAll(/\p{Cc}/gu, ' '));
}

/** Formats the lines that differ between two texts, with some equal lines around them. */
function formatLineChanges(
  before: readonly string[],
  after: readonly string[],
  style: Style,
): readonly string[] {
  const shortest = Math.min(before.length, after.length);
  let start = 0;
  while (start < shortest && before[start] === after[start]) start += 1;
  let end = 0;
  while (end < shortest - start && before.at(-1 - end) === after.at(-1 - end)) end += 1;
  const show = (mark: string, lines: readonly string[]): readonly string[] =>
    lines.map((line) => `  ${mark} ${line}`.trimEnd());
  const changed = [
    ...show(' ', before.slice(Math.max(0, start - CONTEXT_LINES), start)),
    ...show('-', before.slice(start, before.length - end)).map(style.red),
    ...show('+', after.slice(start, after.length - end)).map(style.green),
    ...show(' ', before.slice(before.length - end, before.length - end + CONTEXT_LINES)),
  ];
  const hidden = changed.length - MAX_BLOCK_LINES;
  return hidden <= 0
    ? changed
    : [...changed.slice(0, MAX_BLOCK_LINES), `    and ${hidden} more lines; -o json shows all`];
}
